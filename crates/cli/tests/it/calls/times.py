# Which times each operation changes, and which they are set to.


@part
def changes():
    """Times of files and of the directories they are in."""
    fresh("names")
    folder("d"), folder("e")
    d, e = at("d"), at("e")
    timed("create", [d], lambda: put("d/f"))
    timed("open existing creat", [d, at("d/f")], lambda: opened(at("d/f"), os.O_CREAT | os.O_RDWR))
    timed("mkdir", [d], os.mkdir, at("d/sub"))
    timed("symlink", [d], os.symlink, "x", at("d/l"))
    timed("fifo", [d], os.mkfifo, at("d/p"))
    timed("link", [d, e, at("d/f")], os.link, at("d/f"), at("e/g"))
    timed("link refused", [d, e, at("d/f")], os.link, at("d/f"), at("e/g"))
    timed("rename in", [d, at("d/f")], os.rename, at("d/f"), at("d/f2"))
    timed("rename across", [d, e, at("d/f2")], os.rename, at("d/f2"), at("e/f3"))
    timed("rename directory", [d, e, at("d/sub")], os.rename, at("d/sub"), at("e/sub"))
    timed("moved directory", [e, at("e/sub")], os.rename, at("e/sub"), at("d/sub"))
    timed("rename same inode", [e, at("e/g"), at("e/f3")], os.rename, at("e/f3"), at("e/g"))
    put("d/new")
    timed("rename over", [d, e, at("d/new"), at("e/g"), at("e/f3")], os.rename, at("d/new"), at("e/g"))
    timed("what was replaced", [at("e/f3")], os.stat, at("e/f3"))
    put("d/new")
    timed("exchange", [d, e, at("d/new"), at("e/g")], renameat2, at("d/new"), at("e/g"), 2)
    timed("exchange directory", [d, e, at("d/sub"), at("e/g")], renameat2, at("d/sub"), at("e/g"), 2)
    timed("whiteout", [d, at("d/new")], renameat2, at("d/new"), at("d/moved"), 4)
    timed("unlink", [e, at("e/f3")], os.unlink, at("e/f3"))
    put("d/one"), os.link(at("d/one"), at("d/two"))
    timed("unlink one of two", [d, at("d/one")], os.unlink, at("d/two"))
    timed("rmdir", [e, at("e/g")], os.rmdir, at("e/g"))
    timed("rmdir refused", [d], os.rmdir, d)
    timed("rename to itself", [d, at("d/one")], os.rename, at("d/one"), at("d/one"))
    fresh("contents")
    path, paths = put("f", b"x" * 10_000), [at("f")]
    fd = os.open(path, os.O_RDWR)
    for name, function in {
        "write": lambda: os.pwrite(fd, b"x", 0), "write nothing": lambda: os.write(fd, b""), "append": lambda: os.pwrite(fd, b"x", 20_000),
        "read": lambda: len(os.pread(fd, 10, 0)), "read nothing": lambda: os.read(fd, 0), "read at the end": lambda: os.pread(fd, 1, 1 << 30),
        "ftruncate same": lambda: os.ftruncate(fd, os.fstat(fd).st_size), "truncate same": lambda: os.truncate(path, os.stat(path).st_size),
        "ftruncate": lambda: os.ftruncate(fd, 5000), "truncate longer": lambda: os.truncate(path, 9000),
        "open trunc": lambda: opened(path, os.O_RDWR | os.O_TRUNC), "open trunc empty": lambda: opened(path, os.O_RDWR | os.O_TRUNC),
        "truncate empty": lambda: os.truncate(path, 0), "fallocate": lambda: fallocate(fd, 0, 0, 8192),
        "fallocate there": lambda: fallocate(fd, 0, 0, 8192), "fallocate kept": lambda: fallocate(fd, 1, 100_000, 8192),
        "punch": lambda: fallocate(fd, 3, 0, 4096), "zero": lambda: fallocate(fd, 0x10, 0, 4096), "punch beyond": lambda: fallocate(fd, 3, 1 << 30, 4096),
        "copy": lambda: os.copy_file_range(fd, fd, 100, 0, 50_000), "map read": lambda: with_fd(path, os.O_RDWR, lambda f: mmap.mmap(f, 0)[0]),
        "map write": lambda: with_fd(path, os.O_RDWR, mapped_write), "fsync": lambda: os.fsync(fd), "seek": lambda: os.lseek(fd, 0, os.SEEK_DATA),
    }.items():
        # What is read from the kernel's memory we do not hear of.
        timed(name, paths, function, seen="mc")
    os.close(fd)
    fresh("attributes")
    path = put("f")
    for name, function in {
        "chmod": lambda: os.chmod(path, 0o600), "chmod same": lambda: os.chmod(path, 0o600), "chown": lambda: os.chown(path, 5, 5),
        "chown same": lambda: os.chown(path, 5, 5), "chown nothing": lambda: os.chown(path, -1, -1), "setxattr": lambda: os.setxattr(path, "user.a", b"1"),
        "setxattr same": lambda: os.setxattr(path, "user.a", b"1"), "getxattr": lambda: os.getxattr(path, "user.a"),
        "listxattr": lambda: os.listxattr(path), "removexattr": lambda: os.removexattr(path, "user.a"),
        "removexattr none": lambda: os.removexattr(path, "user.a"), "flags": lambda: flags_of(path, 0x40), "flags same": lambda: flags_of(path, 0x40),
        "acl": lambda: os.setxattr(path, "system.posix_acl_access", acl([(1, 6, -1), (2, 4, 9), (4, 4, -1), (16, 4, -1), (32, 4, -1)])),
        "acl as mode": lambda: os.setxattr(path, "system.posix_acl_access", acl([(1, 6, -1), (4, 4, -1), (32, 0, -1)])),
        "utime now": lambda: os.utime(path), "stat": lambda: os.stat(path) and None, "access": lambda: os.access(path, os.R_OK),
    }.items():
        # The same value is written again.
        timed(name, [path], function, seen="am" if name == "setxattr same" else "amc")
    fresh("reading")
    folder("d"), put("d/f"), os.symlink("d/f", at("l")), os.symlink("x" * 100, at("long"))
    timed("list", [at("d")], os.listdir, at("d"))
    timed("look", [at("d")], os.stat, at("d/f"))
    for name in ["l", "long"]:
        timed(f"readlink {name}", [at(name)], os.readlink, at(name))


NOW, OMIT = (1 << 30) - 1, (1 << 30) - 2


def utimens(path, access, modified, flags=0):
    raw("utimensat", -100, bytes_of(path), struct.pack("qqqq", *access, *modified), flags)


@part
def setting():
    """utimensat, with every kind of time, by every user."""
    kinds = {"now": (0, NOW), "omit": (0, OMIT), "set": (1000, 5), "wrong": (0, 1 << 30), "minus": (0, -1), "before": (-5, 7), "now with seconds": (9, NOW)}
    for owner in ["root", "ann"]:
        for mode in [0o644, 0o666, 0o444]:
            for who in USERS:
                fresh(f"{owner} {mode:o} {who}")
                path = put("f", mode=mode, owner=owner)
                for one, access in kinds.items():
                    for other, modified in kinds.items():
                        os.utime(path, ns=(10**18, 10**18))
                        with user(who):
                            answer = outcome(utimens, path, access, modified)
                        s = os.stat(path)
                        told = [t if t < 2 * 10**18 and t < time.time_ns() - 10**15 else "now" for t in [s.st_atime_ns, s.st_mtime_ns]]
                        say(f"{one} {other}", f"{answer} {told}")
    fresh("limits")
    path = put("f")
    for seconds in [-(1 << 31) - 1, -(1 << 31), -1, 0, (1 << 31) - 1, 1 << 31, (1 << 32), (1 << 33), (1 << 34) - (1 << 31) - 1, (1 << 34), 1 << 40, 1 << 62]:
        call(f"set {seconds}", utimens, path, (seconds, 123456789), (seconds, 987654321))
        say("is", f"{os.stat(path).st_atime_ns} {os.stat(path).st_mtime_ns}")
    os.symlink("nowhere", at("l"))
    call("link", utimens, at("l"), (7, 7), (8, 8), 0x100)
    say("is", os.lstat(at("l")).st_mtime_ns)
    call("wrong flags", utimens, path, (7, 7), (8, 8), 0x40000)
    call("by descriptor", with_fd, path, os.O_RDONLY, lambda fd: os.utime(fd, ns=(9, 9)))
    call("null", raw, "utimensat", -100, bytes_of(path), None, 0)


@part
def births():
    """statx: when a file was born, and what else it tells."""
    fresh("born")
    begun = time.time_ns() - 10**8
    path = put("f")
    first = statx(path)
    time.sleep(0.01)
    os.chmod(path, 0o600)
    os.rename(path, at("g"))
    os.link(at("g"), at("h"))
    say("stays", statx(at("h"))["born"] == first["born"])
    say("is now", begun < first["born"] < time.time_ns())
    for name in ["g", "d", "l", "p"]:
        {"g": lambda: 0, "d": lambda: folder("d"), "l": lambda: os.symlink("g", at("l")), "p": lambda: os.mkfifo(at("p"))}[name]()
        told = statx(at(name))
        say(name, f"mask {told['mask']:x} links {told['links']} mode {told['mode']:o} blksize {told['blksize']}")
    for mask in [0, 1, 0x7ff, 0xfff, 0x80000000]:
        say(f"mask {mask:x}", outcome(lambda: statx(at("g"), mask) and "ok"))
    for flags in [0, 0x100, 0x1000, 0x2000, 0x4000, 0x6000, 0x10000]:
        say(f"flags {flags:x}", outcome(lambda: statx(at("g"), 0xFFF, flags) and "ok"))


def statx(path, mask=0xFFF, flags=0x100):
    buffer = ctypes.create_string_buffer(256)
    raw("statx", -100, bytes_of(path), flags, mask, buffer)
    told, blksize, _, links, _, _, mode = struct.unpack_from("<IIQIIIH", buffer)
    seconds, nanoseconds = struct.unpack_from("<qI", buffer, 80)
    # Of what is in the mask, only what both can know: neither's mount number.
    return {"mask": told & 0xFFF, "blksize": blksize, "links": links, "mode": mode, "born": seconds * 10**9 + nanoseconds}
