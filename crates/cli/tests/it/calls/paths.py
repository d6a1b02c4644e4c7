# Every call that takes a path, with every kind of path that goes wrong.

O = os.O_RDONLY | os.O_NONBLOCK


def opened(path, flags, mode=0o644):
    os.close(os.open(path, flags | os.O_NONBLOCK, mode))


def statfs(path):
    os.statvfs(path)


def looked(path, follow):
    s = os.stat(path, follow_symlinks=follow)
    return f"{s.st_mode:o} {s.st_nlink}" if not stat.S_ISDIR(s.st_mode) else f"{s.st_mode:o}"


CALLS = {
    "stat": lambda p: looked(p, True),
    "lstat": lambda p: looked(p, False),
    "statfs": statfs,
    "access f": lambda p: raw("faccessat", -100, bytes_of(p), os.F_OK, 0),
    "access r": lambda p: raw("faccessat", -100, bytes_of(p), os.R_OK, 0x200),
    "access w": lambda p: raw("faccessat", -100, bytes_of(p), os.W_OK, 0x200),
    "access x": lambda p: raw("faccessat", -100, bytes_of(p), os.X_OK, 0x200),
    "readlink": os.readlink,
    "list": lambda p: sorted(os.listdir(p)),
    "open r": lambda p: opened(p, os.O_RDONLY),
    "open w": lambda p: opened(p, os.O_WRONLY),
    "open rw": lambda p: opened(p, os.O_RDWR),
    "open append": lambda p: opened(p, os.O_WRONLY | os.O_APPEND),
    "open trunc": lambda p: opened(p, os.O_RDWR | os.O_TRUNC),
    "open r trunc": lambda p: opened(p, os.O_RDONLY | os.O_TRUNC),
    "open creat": lambda p: opened(p, os.O_RDWR | os.O_CREAT),
    "open r creat": lambda p: opened(p, os.O_RDONLY | os.O_CREAT),
    "open creat trunc": lambda p: opened(p, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    "open excl": lambda p: opened(p, os.O_RDWR | os.O_CREAT | os.O_EXCL),
    "open directory": lambda p: opened(p, os.O_RDONLY | os.O_DIRECTORY),
    "open creat directory": lambda p: opened(p, os.O_RDWR | os.O_CREAT | os.O_DIRECTORY),
    "open nofollow": lambda p: opened(p, os.O_RDONLY | os.O_NOFOLLOW),
    "open noatime": lambda p: opened(p, os.O_RDONLY | os.O_NOATIME),
    "open path": lambda p: opened(p, os.O_PATH),
    "open tmpfile": lambda p: opened(p, os.O_TMPFILE | os.O_RDWR),
    "open r tmpfile": lambda p: opened(p, os.O_TMPFILE | os.O_RDONLY),
    "open direct": lambda p: opened(p, os.O_RDONLY | os.O_DIRECT),
    "mkdir": lambda p: os.mkdir(p, 0o755),
    "fifo": lambda p: os.mknod(p, stat.S_IFIFO | 0o644),
    "node": lambda p: os.mknod(p, stat.S_IFREG | 0o644),
    "socket": lambda p: os.mknod(p, stat.S_IFSOCK | 0o644),
    "device": lambda p: os.mknod(p, stat.S_IFCHR | 0o644, os.makedev(1, 3)),
    "symlink": lambda p: os.symlink("to", p),
    "symlink empty": lambda p: os.symlink("", p),
    "symlink 4095": lambda p: os.symlink("x" * 4095, p),
    "symlink 4096": lambda p: os.symlink("x" * 4096, p),
    "unlink": os.unlink,
    "rmdir": os.rmdir,
    "chmod": lambda p: os.chmod(p, 0o640),
    "chmod sgid": lambda p: os.chmod(p, 0o7777),
    "lchmod": lambda p: raw("syscall", 452, -100, bytes_of(p), 0o600, 0x100),
    "chown same": lambda p: os.chown(p, -1, -1),
    "chown uid": lambda p: os.chown(p, 1001, -1),
    "chown gid": lambda p: os.chown(p, -1, 3000),
    "chown gid 3001": lambda p: os.chown(p, -1, 3001),
    "lchown": lambda p: os.lchown(p, 1002, 1002),
    "truncate 0": lambda p: os.truncate(p, 0),
    "truncate 1": lambda p: os.truncate(p, 1),
    "truncate large": lambda p: os.truncate(p, 1 << 20),
    "truncate too large": lambda p: os.truncate(p, 1 << 50),
    "truncate negative": lambda p: raw("truncate", bytes_of(p), -1),
    "utime now": lambda p: os.utime(p),
    "utime set": lambda p: os.utime(p, ns=(5, 6)),
    "lutime set": lambda p: os.utime(p, ns=(5, 6), follow_symlinks=False),
    "getxattr": lambda p: os.getxattr(p, "user.a"),
    "lgetxattr": lambda p: os.getxattr(p, "user.a", follow_symlinks=False),
    "setxattr": lambda p: os.setxattr(p, "user.a", b"v"),
    "lsetxattr": lambda p: os.setxattr(p, "user.a", b"v", follow_symlinks=False),
    "lsetxattr trusted": lambda p: os.setxattr(p, "trusted.a", b"v", follow_symlinks=False),
    "listxattr": lambda p: sorted(os.listxattr(p)),
    "llistxattr": lambda p: sorted(os.listxattr(p, follow_symlinks=False)),
    "removexattr": lambda p: os.removexattr(p, "user.b"),
}


PATHS = [
    "", "none", "none/", "none/none", "f", "f/", "f/x", "f/.", "f/..", "d", "d/", "d/.", "d/..", ".", "..", "d/x", "d/sub",
    "dangling", "dangling/", "dangling/x", "loop", "loop/", "loop/x", "tofile", "tofile/", "todir", "todir/", "todir/x",
    "fifo", "sock", "null", "closed", "closed/x", "closed/none", "listed/x", "entered/x", "readonly/x", "readonly/none",
    "sticky/of-root", "sticky/of-ann", "sticky/of-ben", "sticky/d-of-ann", "ann/f", "ann/none", "grouped", "suid", "sgid",
    "acl", "n" * 255, "n" * 256, "d/" + "n" * 256, "n" * 256 + "/x", "l" * 255, "d/./" * 1100, "sgid-dir/none",
]


def filled():
    """One of each kind, some of them closed to others."""
    put("f", owner="ann")
    os.setxattr(at("f"), "user.a", b"value")
    os.setxattr(at("f"), "user.b", b"value")
    folder("d", 0o775, "ann")
    put("d/x")
    folder("d/sub", owner="ann")
    os.symlink("nowhere", at("dangling"))
    os.symlink("loop", at("loop"))
    os.symlink("f", at("tofile"))
    os.symlink("d", at("todir"))
    os.mkfifo(at("fifo"))
    os.mknod(at("sock"), stat.S_IFSOCK | 0o666)
    os.mknod(at("null"), stat.S_IFCHR | 0o666, os.makedev(1, 3))
    for name, mode in [("closed", 0), ("listed", 0o744), ("entered", 0o711), ("readonly", 0o755), ("sticky", 0o1777)]:
        folder(name)
        if name != "sticky":
            put(name + "/x", mode=0o666)
        os.chmod(at(name), mode)
    for owner in USERS:
        put("sticky/of-" + owner, owner=owner, mode=0o666)
    folder("sticky/d-of-ann", owner="ann")
    folder("ann", 0o700, "ann")
    put("ann/f", owner="ann")
    os.chown(put("grouped"), 0, 3000)
    os.chmod(at("grouped"), 0o664)
    put("suid", mode=0o6755, owner="ann")
    os.chown(put("sgid"), 1001, 3000)
    os.chmod(at("sgid"), 0o2775)
    folder("sgid-dir")
    os.chown(at("sgid-dir"), 0, 3001)
    os.chmod(at("sgid-dir"), 0o2777)
    put("acl", mode=0o600)
    entries = [(1, 6, -1), (2, 6, 1002), (4, 0, -1), (16, 6, -1), (32, 0, -1)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    os.setxattr(at("acl"), "system.posix_acl_access", acl)
    put("l" * 255)


def refill(case):
    fresh(case)
    filled()


@part
def single():
    """Each call on each path by each user; whatever changes something is undone."""
    for who in USERS:
        refill(who)
        before = tree()
        for name, function in CALLS.items():
            for path in PATHS:
                if (name, path, who) in [("chown same", "suid", "ben"), ("chown same", "sgid", "ben")]:
                    # Comes to us as what precedes a write by another, and may not be refused.
                    continue
                full = at(path) if path else ""
                shorter = path if len(path) < 60 else f"{path[:8]}…{len(path)}"
                with user(who):
                    answer = outcome(function, full)
                say(f"{name} {shorter}", answer)
                if answer == "ok" or isinstance(answer, int):
                    after = tree()
                    say("leaves", after)
                    if after != before or "xattr" in name or "time" in name:
                        refill(who)


PAIRED = [
    "", "none", "none/", "none/x", "f", "f/", "f/x", "tofile", "d", "d/", "d/.", "..", "d/x", "d/sub", "d/sub/below", "d/none",
    "dangling", "loop/x", "todir", "todir/", "todir/x", "fifo", "closed", "closed/x", "readonly/x", "readonly/none", "sticky/of-root",
    "sticky/of-ann", "sticky/of-ben", "sticky/none", "sticky/d-of-ann", "ann", "ann/f", "empty", "suid", "n" * 255, "n" * 256, "sgid-dir/none",
]

PAIRS = {
    "rename": lambda a, b: renameat2(a, b, 0),
    "rename noreplace": lambda a, b: renameat2(a, b, 1),
    "rename exchange": lambda a, b: renameat2(a, b, 2),
    "rename whiteout": lambda a, b: renameat2(a, b, 4),
    "rename noreplace whiteout": lambda a, b: renameat2(a, b, 5),
    "rename noreplace exchange": lambda a, b: renameat2(a, b, 3),
    "rename flag 8": lambda a, b: renameat2(a, b, 8),
    "link": lambda a, b: raw("linkat", -100, bytes_of(a), -100, bytes_of(b), 0),
    "link follow": lambda a, b: raw("linkat", -100, bytes_of(a), -100, bytes_of(b), 0x400),
}


def pairs(which, who):
    def again():
        refill(f"{which} {who}")
        folder("empty", owner="ann")
        return tree()

    before = again()
    turn, is_long = list(USERS).index(who), "UEXT4_LONG" in os.environ
    for first, one in enumerate(PAIRED):
        for second, other in enumerate(PAIRED):
            # In the quick mode each pair has one of the users.
            if not is_long and (first + second) % len(USERS) != turn:
                continue
            with user(who):
                answer = outcome(PAIRS[which], at(one) if one else "", at(other) if other else "")
            say(f"{one[:20]} {other[:20]}", answer)
            if answer == "ok":
                after = tree()
                say("leaves", after)
                if after != before:
                    before = again()


@part
def paired():
    """Renames and links from each path to each."""
    for which in PAIRS:
        for who in USERS:
            pairs(which, who)


def for_reading():
    """What `single` needs of a mount that is read-only afterwards."""
    STATE["part"] = "refused"
    refill("made")


@part
def refused():
    """Each call on each path of a mount that is read-only."""
    for who in USERS:
        STATE["case"] = who
        for name, function in CALLS.items():
            for path in PATHS:
                with user(who):
                    answer = outcome(function, at(path) if path else "")
                say(f"{name} {path[:30]}", answer)
    for name in ["rename", "rename exchange", "link"]:
        for one in PAIRED[:24]:
            for other in PAIRED[:24]:
                answer = outcome(PAIRS[name], at(one) if one else "", at(other) if other else "")
                say(f"{name} {one[:20]} {other[:20]}", answer)
