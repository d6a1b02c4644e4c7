# Owners, modes, set-id bits, extended attributes, ACLs, flags.


@part
def set_ids():
    """What drops set-user-id and set-group-id, done by whom."""
    changes = {
        "write": lambda p: with_fd(p, os.O_WRONLY, lambda fd: os.write(fd, b"x")),
        "write nothing": lambda p: with_fd(p, os.O_WRONLY, lambda fd: os.write(fd, b"")),
        "append": lambda p: with_fd(p, os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, b"x")),
        "direct": lambda p: with_fd(p, os.O_WRONLY | os.O_DIRECT, lambda fd: os.write(fd, mmap.mmap(-1, 4096))),
        "truncate": lambda p: os.truncate(p, 1),
        "truncate same": lambda p: os.truncate(p, 4),
        "truncate longer": lambda p: os.truncate(p, 100),
        "ftruncate": lambda p: with_fd(p, os.O_WRONLY, lambda fd: os.ftruncate(fd, 0)),
        "open trunc": lambda p: opened(p, os.O_WRONLY | os.O_TRUNC),
        "open": lambda p: opened(p, os.O_WRONLY),
        "fallocate": lambda p: with_fd(p, os.O_WRONLY, lambda fd: fallocate(fd, 0, 0, 8192)),
        "punch": lambda p: with_fd(p, os.O_WRONLY, lambda fd: fallocate(fd, 3, 0, 4096)),
        "copy": lambda p: with_fd("/etc/passwd", os.O_RDONLY, lambda i: with_fd(p, os.O_WRONLY, lambda o: os.sendfile(o, i, 0, 3))),
        "copy range": lambda p: with_fd(at("source"), os.O_RDONLY, lambda i: with_fd(p, os.O_WRONLY, lambda o: os.copy_file_range(i, o, 3))),
        "map": lambda p: with_fd(p, os.O_RDWR, mapped_write),
        "chown same": lambda p: os.chown(p, -1, -1),
        "chown uid": lambda p: os.chown(p, os.stat(p).st_uid, -1),
        "chown own group": lambda p: os.chown(p, -1, os.getegid()),
        "chown 3000": lambda p: os.chown(p, -1, 3000),
        "chown 3001": lambda p: os.chown(p, -1, 3001),
        "chown ben": lambda p: os.chown(p, 1002, -1),
        "chmod same": lambda p: os.chmod(p, stat.S_IMODE(os.stat(p).st_mode)),
        "chmod all": lambda p: os.chmod(p, 0o7777),
        "link": lambda p: os.link(p, p + "2"),
        "rename": lambda p: os.rename(p, p + "2"),
        "utime": lambda p: os.utime(p),
        "xattr": lambda p: os.setxattr(p, "user.a", b"x"),
        "acl": lambda p: os.setxattr(p, "system.posix_acl_access", acl([(1, 7, -1), (2, 7, 1002), (4, 7, -1), (16, 7, -1), (32, 7, -1)])),
    }
    modes = [0o6777, 0o2777, 0o4777, 0o2767, 0o6767, 0o1666, 0o2666]
    for group in [0, 1001, 3000]:
        for owner in ["root", "ann"]:
            fresh(f"group {group} owner {owner}")
            put("source", b"source")
            for name, function in changes.items():
                for mode in modes:
                    for who in USERS:
                        if name == "chown same" and who not in ["root", owner]:
                            # Comes to us as what precedes a write by another, and may not be refused.
                            continue
                        path = put("f")
                        os.chown(path, USERS[owner][0], group)
                        os.chmod(path, mode)
                        with user(who):
                            answer = outcome(function, path)
                        after = path if os.path.exists(path) else path + "2"
                        answer = answer if isinstance(answer, str) else "ok"
                        say(f"{name} {mode:o} {who}", f"{answer} {os.stat(after).st_mode:o} {os.stat(after).st_gid}")
                        for left in ["f", "f2"]:
                            with contextlib.suppress(OSError):
                                os.unlink(at(left))


def mapped_write(fd):
    mapping = mmap.mmap(fd, 0)
    mapping[0] = 65
    mapping.flush()
    mapping.close()


def acl(entries):
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)


@part
def inherited():
    """What directories hand on to what is made in them."""
    default = acl([(1, 7, -1), (2, 6, 1002), (4, 5, -1), (16, 7, -1), (32, 1, -1)])
    for mode in [0o777, 0o2777, 0o3777]:
        for group in [0, 3000]:
            for has_acl in [False, True]:
                for mask in [0, 0o22, 0o77]:
                    fresh(f"{mode:o} {group} {has_acl} {mask:o}")
                    path = folder("d", mode)
                    os.chown(path, 0, group)
                    os.chmod(path, mode)
                    if has_acl:
                        os.setxattr(path, "system.posix_acl_default", default)
                    for who in USERS:
                        os.umask(mask)
                        with user(who):
                            for name, function in {
                                "mkdir": lambda p: os.mkdir(p, 0o2777), "open": lambda p: opened(p, os.O_CREAT | os.O_RDWR, 0o7777),
                                "node": lambda p: os.mknod(p, stat.S_IFREG | 0o6666), "fifo": lambda p: os.mknod(p, stat.S_IFIFO | 0o666),
                                "link": lambda p: os.symlink("x", p), "tmpfile": lambda p: linked(path, p),
                            }.items():
                                made = os.path.join(path, f"{name}-{who}")
                                call(f"{name} {who}", function, made)
                                say("is", outcome(shown, made))
                        os.umask(0o022)
                        for name in sorted(os.listdir(path)):
                            for which in ["access", "default"]:
                                told = outcome(os.getxattr, os.path.join(path, name), f"system.posix_acl_{which}", follow_symlinks=False)
                                say(f"{name} {which}", told if isinstance(told, str) else told.hex())


def linked(directory, path):
    fd = os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o2777)
    raw("linkat", -100, bytes_of(f"/proc/self/fd/{fd}"), -100, bytes_of(path), 0x400)
    os.close(fd)


@part
def acls():
    """Who may do what by an ACL, and what is no ACL."""
    fresh("permissions")
    cases = {
        "user ben": [(1, 6, -1), (2, 4, 1002), (4, 0, -1), (16, 6, -1), (32, 0, -1)],
        "masked": [(1, 6, -1), (2, 6, 1002), (4, 6, -1), (16, 4, -1), (32, 0, -1)],
        "group": [(1, 6, -1), (4, 0, -1), (8, 6, 3000), (16, 6, -1), (32, 0, -1)],
        "group 3001": [(1, 6, -1), (4, 0, -1), (8, 4, 3000), (8, 2, 3001), (16, 6, -1), (32, 0, -1)],
        "others": [(1, 0, -1), (4, 0, -1), (32, 6, -1)],
        "no mask": [(1, 6, -1), (2, 6, 1002), (4, 4, -1), (32, 4, -1)],
        "no owner": [(4, 4, -1), (32, 4, -1)],
        "twice": [(1, 6, -1), (1, 6, -1), (4, 4, -1), (32, 4, -1)],
        "unsorted": [(32, 4, -1), (1, 6, -1), (4, 4, -1)],
        "wrong tag": [(1, 6, -1), (4, 4, -1), (32, 4, -1), (64, 7, -1)],
        "wrong bits": [(1, 15, -1), (4, 4, -1), (32, 4, -1)],
        "empty": [],
        "many": [(1, 7, -1)] + [(2, 5, uid) for uid in range(2000, 2400)] + [(4, 4, -1), (16, 7, -1), (32, 0, -1)],
        "too many": [(1, 7, -1)] + [(2, 5, uid) for uid in range(2000, 12_000)] + [(4, 4, -1), (16, 7, -1), (32, 0, -1)],
    }
    for name, entries in cases.items():
        for kind in ["access", "default"]:
            for target in ["f", "d"]:
                path = put(target, mode=0o640, owner="ann") if target == "f" else folder(target, 0o750, "ann")
                for who in USERS:
                    with user(who):
                        call(f"{name} {kind} {target} {who}", os.setxattr, path, f"system.posix_acl_{kind}", acl(entries))
                    say("mode", f"{os.stat(path).st_mode:o}")
                    told = outcome(os.getxattr, path, f"system.posix_acl_{kind}")
                    say("acl", told if isinstance(told, str) else hashlib.sha1(told).hexdigest()[:8])
                for who in USERS:
                    with user(who):
                        for access in [os.R_OK, os.W_OK, os.X_OK]:
                            call(f"{who} {access}", raw, "faccessat", -100, bytes_of(path), access, 0x200)
                call("chmod", os.chmod, path, 0o640)
                told = outcome(os.getxattr, path, "system.posix_acl_access")
                say("acl", told if isinstance(told, str) else hashlib.sha1(told).hexdigest()[:8])
                call("remove", os.removexattr, path, f"system.posix_acl_{kind}")
                say("names", sorted(os.listxattr(path)))
                (os.unlink if target == "f" else os.rmdir)(path)
    path = put("f")
    for version in [0, 1, 3]:
        call(f"version {version}", os.setxattr, path, "system.posix_acl_access", struct.pack("<I", version) + acl(cases["others"])[4:])
    call("cut", os.setxattr, path, "system.posix_acl_access", acl(cases["others"])[:-3])
    call("empty value", os.setxattr, path, "system.posix_acl_access", b"")
    os.symlink("f", at("l"))
    call("link", os.setxattr, at("l"), "system.posix_acl_access", acl(cases["others"]), follow_symlinks=False)


@part
def xattrs():
    """Attributes of every space, on every kind of file, by every user."""
    names = ["user.a", "trusted.a", "security.a", "security.capability", "system.a", "system.data", "bogus.a", "user.", "user", "nodot", ""]
    names += ["user." + "n" * 250, "user." + "n" * 251, "x" * 300, "trusted.overlay.opaque", "security.selinux", "User.a"]
    capability = struct.pack("<IIIII", 0x2000000, 1, 0, 0, 0)
    for kind in ["file", "dir", "sticky", "link", "fifo", "closed"]:
        for who in USERS:
            fresh(f"{kind} {who}")
            path = at("it")
            if kind in ["file", "closed"]:
                put("it", mode=0o600 if kind == "closed" else 0o666, owner="ann")
            elif kind in ["dir", "sticky"]:
                folder("it", 0o777 if kind == "dir" else 0o1777, "ann")
            elif kind == "link":
                os.symlink("nowhere", path)
            else:
                os.mkfifo(path, 0o666)
                os.chmod(path, 0o666)
            for name in names:
                value = capability if "capability" in name else b"value"
                for what, space in [("by user", user(who)), ("by root", user("root"))]:
                    with space:
                        shorter = f"{what} {name[:24]} {len(name)}"
                        call(f"get {shorter}", os.getxattr, path, name, follow_symlinks=False)
                        call(f"replace {shorter}", os.setxattr, path, name, value, 2, follow_symlinks=False)
                        call(f"create {shorter}", os.setxattr, path, name, value, 1, follow_symlinks=False)
                        call(f"create {shorter}", os.setxattr, path, name, value, 1, follow_symlinks=False)
                        call(f"flags {shorter}", os.setxattr, path, name, value, 3, follow_symlinks=False)
                        call(f"get {shorter}", os.getxattr, path, name, follow_symlinks=False)
                        call(f"list {shorter}", lambda: sorted(os.listxattr(path, follow_symlinks=False)))
                    with user(who):
                        call(f"remove {shorter}", os.removexattr, path, name, follow_symlinks=False)
                call("removed", outcome, os.removexattr, path, name, follow_symlinks=False)
    fresh("sizes")
    path = put("f")
    for size in [0, 1, 50, 100, 2000, 3800, 4000, 4100, 65536, 65537]:
        call(f"set {size}", os.setxattr, path, "user.v", b"v" * size)
        for room in [0, 1, size - 1, size, size + 1]:
            buffer = ctypes.create_string_buffer(max(room, 1))
            call(f"get {size} in {room}", raw, "getxattr", bytes_of(path), b"user.v", buffer, max(room, 0))
            call(f"list {size} in {room}", raw, "listxattr", bytes_of(path), buffer, max(room, 0))
    fresh("many")
    path = put("f")
    for number in range(80):
        call(f"set {number}", os.setxattr, path, f"user.{number:03}", b"v" * 60)
    call("list", lambda: sorted(os.listxattr(path)))


def permitted(answer):
    """Of what two things forbid, the kernel tells of the kind first here, as it does not know of flags."""
    return "no" if answer in ["EPERM", "EISDIR", "ENOTDIR"] else answer


@part
def flagged():
    """Immutable and append-only files and directories."""
    calls = {name: CALLS[name] for name in CALLS if not name.startswith(("access", "stat", "lstat"))}
    for flags in [IMMUTABLE, APPEND]:
        for who in ["root", "ann"]:
            fresh(f"{flags:x} {who}")
            put("file", owner="ann", mode=0o666)
            os.setxattr(at("file"), "user.a", b"1")
            os.setxattr(at("file"), "user.b", b"1")
            folder("dir", 0o777, "ann")
            put("dir/file", owner="ann", mode=0o666)
            folder("dir/sub", owner="ann")
            folder("other", 0o777)
            put("other/file", owner="ann")
            held = {mode: os.open(at("file"), mode) for mode in [os.O_WRONLY, os.O_RDWR | os.O_APPEND]}
            flags_of(at("file"), flags)
            flags_of(at("dir"), flags)
            for name, function in calls.items():
                for path in ["file", "dir", "dir/file", "dir/none"]:
                    before = tree()
                    with user(who):
                        answer = outcome(function, at(path))
                    say(f"{name} {path}", permitted(answer) if name in ["unlink", "rmdir"] else answer)
                    if tree() != before:
                        say("leaves", tree())
                        for left in ["dir/none"]:
                            with contextlib.suppress(OSError):
                                flags_of(at("dir"), 0)
                                (os.rmdir if os.path.isdir(at(left)) and not os.path.islink(at(left)) else os.unlink)(at(left))
                            flags_of(at("dir"), flags)
            for which, function in PAIRS.items():
                for one in ["file", "dir", "dir/file", "dir/sub", "other/file", "none", "dir/none"]:
                    for other in ["file", "dir", "dir/file", "dir/sub", "other/new", "dir/new"]:
                        with user(who):
                            answer = outcome(function, at(one), at(other))
                        say(f"{which} {one} {other}", permitted(answer))
            for mode, fd in held.items():
                # Who had an append-only file open may go on anywhere in the kernel's ext4, and nowhere here.
                writes = flags != APPEND or mode & os.O_APPEND
                if writes:
                    call(f"held {mode:x} write", os.write, fd, b"x")
                    call(f"held {mode:x} pwrite", os.pwrite, fd, b"x", 0)
                call(f"held {mode:x} truncate", os.ftruncate, fd, 1)
                call(f"held {mode:x} fallocate", fallocate, fd, 0, 0, 9000)
                call(f"held {mode:x} punch", fallocate, fd, 3, 0, 4096)
                call(f"held {mode:x} zero", fallocate, fd, 0x10, 0, 4096)
                call(f"held {mode:x} chmod", os.fchmod, fd, 0o640)
                call(f"held {mode:x} utime", os.utime, fd)
                call(f"held {mode:x} utime set", os.utime, fd, ns=(5, 5))
                call(f"held {mode:x} xattr", os.setxattr, fd, "user.c", b"1")
                if writes:
                    call(f"held {mode:x} copy", lambda: with_fd(at("other"), os.O_TMPFILE | os.O_RDWR, lambda i: (os.write(i, b"abc"), os.copy_file_range(i, fd, 3, 0))[1]))
                os.close(fd)
            with user("ann"):
                call("clear by owner", flags_of, at("file"), 0)
                call("set by owner", flags_of, at("other/file") if os.path.exists(at("other/file")) else at("dir"), 0x80)
            for path in ["file", "dir", "other/new", "dir/new"]:
                with contextlib.suppress(OSError):
                    flags_of(at(path), 0)
            say("leaves", tree())
