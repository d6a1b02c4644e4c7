# What is done with files that are open: data, ranges, locks, mappings, directories.


def big(name, length=1 << 20):
    return put(name, bytes(i // 7 % 251 for i in range(length)), 0o666)


@part
def ranges():
    """fallocate with every mode, on every kind of file, at every kind of place; what it leaves."""
    modes = [0, 1, 2, 3, 4, 0x10, 0x11, 0x12, 0x100]
    # Collapsing, inserting, unsharing and writing zeros do not come to us.
    places = [(0, 0), (-1, 10), (0, -1), (0, 4096), (100, 5000), (4096, 8192), (1 << 20, 4096), (1 << 19, 1 << 20)]
    places += [(3 << 20, 1 << 16), (1 << 44, 1), ((1 << 44) - 4096, 4096), (1 << 62, 1 << 62), (5, 1), (4095, 2)]
    for mode in modes:
        for offset, length in places:
            if length == 4096 and offset > 1 << 40 and mode == 0x10:
                continue
            fresh(f"mode {mode:x} at {offset} for {length}")
            path = big("file")
            call("fallocate", with_fd, path, os.O_RDWR, lambda fd: fallocate(fd, mode, offset, length))
            # The kernel's ext4 calls data what is in its memory where nothing is written, zeroes read for one.
            with_fd(path, os.O_RDWR, lambda fd: (os.fsync(fd), os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)))
            call("holes", with_fd, path, os.O_RDONLY, holes)
            if os.stat(path).st_size < 1 << 30:
                data = open(path, "rb").read()
                say("leaves", f"{len(data)} {hashlib.sha1(data).hexdigest()[:12]}")
            say("blocks", os.stat(path).st_blocks // 8 if os.stat(path).st_size < 1 << 40 else "many")
        fresh(f"mode {mode:x} elsewhere")
        for name, open_flags in [("read-only", os.O_RDONLY), ("append", os.O_WRONLY | os.O_APPEND), ("path", os.O_PATH)]:
            call(name, with_fd, put("f"), open_flags, lambda fd: fallocate(fd, mode, 0, 4096))
        call("directory", with_fd, at(), os.O_RDONLY, lambda fd: fallocate(fd, mode, 0, 4096))
        os.mkfifo(at("fifo"))
        call("fifo", with_fd, at("fifo"), os.O_RDWR, lambda fd: fallocate(fd, mode, 0, 4096))


def holes(fd):
    """Where data and holes begin."""
    found, place, length = [], 0, os.fstat(fd).st_size
    while place < length and len(found) < 20:
        try:
            place = os.lseek(fd, place, os.SEEK_DATA)
            end = os.lseek(fd, place, os.SEEK_HOLE)
        except OSError as error:
            return found + [name_of(error)]
        found.append((place, end))
        place = end
    return found


@part
def sparse():
    """SEEK_DATA and SEEK_HOLE, before and after data is on the device."""
    for synced in [False, True]:
        fresh(f"synced {synced}")
        for name, pieces in {
            "empty": [], "start": [(0, 10)], "middle": [(8192, 4096)], "two": [(0, 4096), (1 << 20, 1)],
            "far": [(1 << 40, 1)], "dense": [(0, 300_000)], "many": [(i * 16384, 100) for i in range(8)],
        }.items():
            path = at(name)
            fd = os.open(path, os.O_RDWR | os.O_CREAT)
            for offset, length in pieces:
                os.pwrite(fd, b"x" * length, offset)
            os.ftruncate(fd, max(os.fstat(fd).st_size, 100_000))
            if name == "middle":
                fallocate(fd, 1, 32768, 8192)
            if synced:
                os.fsync(fd)
            say(name, holes(fd))
            # SEEK_END beyond the largest file is refused by ext4, and not asked of us.
            for place in [-1, 0, 5, 4095, 4096, 8191, 8192, 50_000, 99_999, 100_000, 100_001, 1 << 41, 1 << 62]:
                for whence in [os.SEEK_DATA, os.SEEK_HOLE, os.SEEK_END][: 2 if place > 1 << 60 else 3]:
                    say(f"{name} {place} {whence}", outcome(os.lseek, fd, place, whence))
            say(f"{name} whence 9", outcome(os.lseek, fd, 0, 9))
            os.close(fd)
    # Places in directories are each file system's own.


@part
def writing():
    """Where data goes, and what may not be written."""
    fresh("append")
    path = put("f", b"12345")
    fd = os.open(path, os.O_RDWR | os.O_APPEND)
    call("pwrite at 0", os.pwrite, fd, b"ab", 0)
    call("write", os.write, fd, b"cd")
    other = os.open(path, os.O_WRONLY | os.O_APPEND)
    call("other's write", os.write, other, b"ef")
    call("write again", os.write, fd, b"gh")
    call("place", os.lseek, fd, 0, os.SEEK_CUR)
    say("holds", open(path, "rb").read())
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK)
    call("pwrite without append", os.pwrite, fd, b"zz", 0)
    say("holds", open(path, "rb").read())
    os.close(fd)
    fresh("limits")
    path = put("f")
    for name, flags in [("read", os.O_RDONLY), ("write", os.O_WRONLY), ("path", os.O_PATH)]:
        call(f"{name}: write", with_fd, path, flags, lambda fd: os.write(fd, b"x"))
        call(f"{name}: read", with_fd, path, flags, lambda fd: os.read(fd, 1))
        call(f"{name}: truncate", with_fd, path, flags, lambda fd: os.ftruncate(fd, 2))
        call(f"{name}: fsync", with_fd, path, flags, os.fsync)
        call(f"{name}: fdatasync", with_fd, path, flags, os.fdatasync)
        call(f"{name}: chmod", with_fd, path, flags, lambda fd: os.fchmod(fd, 0o600))
        call(f"{name}: chown", with_fd, path, flags, lambda fd: os.fchown(fd, 0, 0))
        call(f"{name}: utime", with_fd, path, flags, lambda fd: os.utime(fd))
        call(f"{name}: setxattr", with_fd, path, flags, lambda fd: os.setxattr(fd, "user.x", b"1"))
        call(f"{name}: sync_file_range", with_fd, path, flags, lambda fd: raw("sync_file_range", fd, 0, 0, 7))
        call(f"{name}: fadvise", with_fd, path, flags, lambda fd: os.posix_fadvise(fd, 0, 0, 4))
        call(f"{name}: readahead", with_fd, path, flags, lambda fd: raw("readahead", fd, 0, 4096))
    call("directory: read", with_fd, at(), os.O_RDONLY, lambda fd: os.read(fd, 1))
    call("directory: fsync", with_fd, at(), os.O_RDONLY, os.fsync)
    call("directory: fdatasync", with_fd, at(), os.O_RDONLY, os.fdatasync)
    for offset in [(1 << 44) - 4096, (1 << 44) - 4097, (1 << 44) - 1, 1 << 44, (1 << 63) - 1, -1]:
        call(f"pwrite 2 at {offset}", with_fd, path, os.O_WRONLY, lambda fd: os.pwrite(fd, b"xy", offset))
        say("size", os.stat(path).st_size)
        call(f"pread at {offset}", with_fd, path, os.O_RDONLY, lambda fd: len(os.pread(fd, 5, offset)))
        os.truncate(path, 4)
    for size in [(1 << 44) - 4096, (1 << 44) - 4095, 1 << 44, (1 << 63) - 1]:
        call(f"truncate to {size}", os.truncate, path, size)
        say("size", os.stat(path).st_size)
    os.truncate(path, 4)
    call("write nothing", with_fd, path, os.O_WRONLY, lambda fd: os.pwrite(fd, b"", 100))
    say("size", os.stat(path).st_size)
    call("vectors", with_fd, path, os.O_RDWR, lambda fd: os.pwritev(fd, [b"ab", b"", b"cd"] * 10, 3))
    call("back", with_fd, path, os.O_RDWR, lambda fd: os.pread(fd, 60, 0))
    call("nowait", with_fd, path, os.O_RDWR, lambda fd: os.preadv(fd, [bytearray(10)], 0, os.RWF_HIPRI))
    call("dsync", with_fd, path, os.O_RDWR, lambda fd: os.pwritev(fd, [b"dsync"], 0, os.RWF_DSYNC))
    for flags in [os.O_SYNC, os.O_DSYNC]:
        call("sync", with_fd, path, os.O_RDWR | flags, lambda fd: os.write(fd, b"synced"))


@part
def direct():
    """O_DIRECT at places that are and are not aligned."""
    buffer = mmap.mmap(-1, 1 << 16)
    buffer.write(b"d" * (1 << 16))
    view = memoryview(buffer)
    for offset in [0, 512, 4096, 1000, 65536, 61440]:
        for length in [512, 4096, 100, 8192, 0]:
            for skew in [0, 512]:
                fresh(f"{offset} {length} {skew}")
                path = big("f", 65636)
                # That memory is not aligned is not told to us.
                part = view[skew : skew + length]
                call("write", with_fd, path, os.O_RDWR | os.O_DIRECT, lambda fd: os.pwritev(fd, [part], offset))
                call("read", with_fd, path, os.O_RDWR | os.O_DIRECT, lambda fd: os.preadv(fd, [part], offset))
                data = open(path, "rb").read()
                say("leaves", f"{len(data)} {hashlib.sha1(data).hexdigest()[:8]}")
                buffer[:] = b"d" * (1 << 16)


@part
def copies():
    """copy_file_range."""
    fresh("ranges")
    cases = [
        (0, 0, 100), (0, 0, 0), (5, 7, 5000), (0, 0, 1 << 30), (1 << 20, 0, 10), ((1 << 20) - 5, 0, 10),
        (0, 1 << 21, 100), (0, (1 << 44) - 4100, 100), (1 << 50, 0, 5), (-1, 0, 5), (4096, 8192, 65536),
    ]
    for one, other, length in cases:
        source, target = big("from"), put("to", b"t" * 9000)
        def copy(flags_in=os.O_RDONLY, flags_out=os.O_WRONLY):
            return with_fd(source, flags_in, lambda i: with_fd(target, flags_out, lambda o: os.copy_file_range(i, o, length, one, other)))
        call(f"{one} {other} {length}", copy)
        if os.stat(target).st_size < 1 << 30:
            say("leaves", hashlib.sha1(open(target, "rb").read()).hexdigest()[:12])
        os.truncate(target, 0)
    fresh("kinds")
    source, target = big("from"), put("to")
    os.mkfifo(at("fifo"))
    pairs = [
        ("same, apart", source, os.O_RDWR, source, os.O_RDWR, 0, 1 << 19), ("same, over", source, os.O_RDWR, source, os.O_RDWR, 0, 50),
        ("append", source, os.O_RDONLY, target, os.O_WRONLY | os.O_APPEND, 0, 0), ("to read", source, os.O_RDONLY, target, os.O_RDONLY, 0, 0),
        ("from write", source, os.O_WRONLY, target, os.O_WRONLY, 0, 0), ("from directory", at(), os.O_RDONLY, target, os.O_WRONLY, 0, 0),
        ("to directory", source, os.O_RDONLY, at(), os.O_RDONLY, 0, 0), ("fifo", at("fifo"), os.O_RDWR, target, os.O_WRONLY, 0, 0),
        ("elsewhere", "/etc/passwd", os.O_RDONLY, target, os.O_WRONLY, 0, 0),
    ]
    for name, one, flags_one, other, flags_other, from_, to in pairs:
        def copy():
            answer = with_fd(one, flags_one, lambda i: with_fd(other, flags_other, lambda o: os.copy_file_range(i, o, 100, from_, to)))
            return answer if name != "elsewhere" else "some"
        call(name, copy)
    call("sendfile", lambda: with_fd(source, os.O_RDONLY, lambda i: with_fd(target, os.O_WRONLY, lambda o: os.sendfile(o, i, 5, 70_000))))
    say("target", hashlib.sha1(open(target, "rb").read()[70_000:]).hexdigest()[:8])
    call("clone", lambda: with_fd(source, os.O_RDONLY, lambda i: with_fd(target, os.O_WRONLY, lambda o: fcntl.ioctl(o, 0x40049409, i))))


@part
def mappings():
    """What is mapped and what is read and written are the same."""
    fresh("shared")
    path = big("f", 200_000)
    fd, other = os.open(path, os.O_RDWR), os.open(path, os.O_RDWR)
    mapped = mmap.mmap(fd, 0)
    own = mmap.mmap(other, 0, mmap.MAP_PRIVATE)
    mapped[5000:5005] = b"hello"
    say("read sees it", os.pread(other, 5, 5000))
    os.pwrite(other, b"world", 100_000)
    say("mapping sees it", mapped[100_000:100_005])
    own[7000:7005] = b"mine!"
    say("own stays", os.pread(fd, 5, 7000) != b"mine!")
    say("flush", outcome(mapped.flush))
    fallocate(fd, 3, 4096, 4096)
    say("punched", mapped[5000:5005])
    os.ftruncate(fd, 300_000)
    mapped.resize(300_000)
    mapped[299_990:299_995] = b"ended"
    say("extended", os.pread(fd, 10, 299_988))
    os.ftruncate(fd, 6000)
    os.ftruncate(fd, 300_000)
    say("zeros", set(mapped[6000:8192]))
    mapped[250_000:250_003] = b"abc"
    mapped.close()
    say("after", os.pread(fd, 3, 250_000))
    say("blocks", os.fstat(fd).st_blocks > 0)
    os.close(fd)
    os.close(other)
    say("sum", hashlib.sha1(open(path, "rb").read()).hexdigest()[:12])
    fresh("refused")
    path = put("f", b"x" * 5000)
    for name, flags in [("read", os.O_RDONLY), ("write", os.O_WRONLY)]:
        call(f"{name} shared", with_fd, path, flags, lambda fd: mmap.mmap(fd, 0).close())
        call(f"{name} private", with_fd, path, flags, lambda fd: mmap.mmap(fd, 0, mmap.MAP_PRIVATE).close())
        call(f"{name} to read", with_fd, path, flags, lambda fd: mmap.mmap(fd, 0, prot=mmap.PROT_READ).close())
    call("directory", with_fd, at(), os.O_RDONLY, lambda fd: mmap.mmap(fd, 4096, prot=mmap.PROT_READ).close())
    fresh("running")
    shutil.copy("/bin/sleep", at("program"))
    os.chmod(at("program"), 0o755)
    child = os.spawnl(os.P_NOWAIT, at("program"), "program", "3600")
    try:
        # Until execve(2) the child is Python still, and the file is as any other.
        while os.readlink(f"/proc/{child}/exe") != at("program"):
            time.sleep(0.001)
        for name in ["open w", "open trunc", "truncate 0", "open r", "unlink"]:
            call(name, CALLS[name], at("program"))
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


@part
def locks():
    """flock, and locks of ranges by process and by opening."""
    fresh("flock")
    path = put("f")
    one, other = os.open(path, os.O_RDWR), os.open(path, os.O_RDWR)
    for first in [fcntl.LOCK_SH, fcntl.LOCK_EX]:
        for second in [fcntl.LOCK_SH, fcntl.LOCK_EX]:
            call(f"{first}", fcntl.flock, one, first | fcntl.LOCK_NB)
            call(f"{first} then {second}", fcntl.flock, other, second | fcntl.LOCK_NB)
            call("converted", fcntl.flock, one, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(one, fcntl.LOCK_UN)
            fcntl.flock(other, fcntl.LOCK_UN)
    for name, get, set_ in [("process", fcntl.F_GETLK, fcntl.F_SETLK), ("opening", 36, 37)]:
        STATE["case"] = name
        def lock(fd, kind, start, length, command):
            answer = fcntl.fcntl(fd, command, struct.pack("hhqqi4x", kind, 0, start, length, 0))
            return struct.unpack("hhqqi4x", answer)[:4]
        call("write 10 to 20", lock, one, fcntl.F_WRLCK, 10, 10, set_)
        call("read 40 on", lock, one, fcntl.F_RDLCK, 40, 0, set_)
        if os.fork() == 0:
            for kind in [fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK]:
                for start, length in [(0, 10), (0, 11), (15, 1), (20, 5), (41, 1), (0, 0), (5, -5), (-1, 5)]:
                    say(f"child {kind} {start} {length}", outcome(lock, other, kind, start, length, set_))
                    say("asked", outcome(lock, other, fcntl.F_WRLCK, start, length, get))
            sys.stdout.flush()
            os._exit(0)
        os.wait()
        call("unlock", lock, one, fcntl.F_UNLCK, 0, 0, set_)
        call("unlock", lock, other, fcntl.F_UNLCK, 0, 0, set_)
    call("read lock on write", with_fd, path, os.O_WRONLY, lambda fd: fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB))
    call("lease", fcntl.fcntl, one, fcntl.F_SETLEASE, fcntl.F_RDLCK)


@part
def listings():
    """Directories that change while they are read."""
    for count in [3, 50, 3000]:
        fresh(f"{count} names")
        for i in range(count):
            os.close(os.open(at(f"name-{i:05}"), os.O_CREAT))
        fd = os.open(at(), os.O_RDONLY | os.O_DIRECTORY)
        numbers = {e.name: e.inode() for e in os.scandir(at())}
        say("numbers", all(os.lstat(at(n)).st_ino == i for n, i in numbers.items()))
        kinds = {e.name: e.is_file(follow_symlinks=False) for e in os.scandir(at())}
        say("kinds", all(kinds.values()) and len(kinds) == count)
        first = dents(fd, 1500)
        gone = sorted(numbers)[:: 3]
        for name in gone:
            os.unlink(at(name))
        for i in range(count):
            os.close(os.open(at(f"later-{i:05}"), os.O_CREAT))
        rest = list(first)
        while more := dents(fd, 8000):
            rest += more
        names = [name for name, _ in rest]
        say("once each", len(names) == len(set(names)))
        say("all that stayed", {n for n in numbers if n not in gone} <= set(names))
        # Back to each place that was told.
        os.lseek(fd, 0, 0)
        again = []
        while more := dents(fd, 8000):
            again += more
        say("again", len([n for n, _ in again if not n.startswith(".")]) == len(os.listdir(at())))
        for number in [0, 1, len(again) // 2, len(again) - 2]:
            os.lseek(fd, again[number][1], 0)
            following = dents(fd, 8000)
            expected = again[number + 1 : number + 4]
            say(f"from place {number}", following[: len(expected)] == expected)
        os.lseek(fd, again[-1][1], 0)
        say("at the end", dents(fd, 8000))
        for i in os.listdir(at()):
            os.unlink(at(i))
        os.lseek(fd, 0, 0)
        say("empty", sorted(name for name, _ in dents(fd, 8000)))
        os.rmdir(at())
        os.lseek(fd, 0, 0)
        say("removed", outcome(lambda: sorted(n for n, _ in dents(fd, 8000))))
        say("create in removed", outcome(os.open, "x", os.O_CREAT, dir_fd=fd))
        say("parent of removed", outcome(os.stat, "..", dir_fd=fd) != "ok")
        os.close(fd)
    call("too small", lambda: with_fd(ROOT, os.O_RDONLY, lambda fd: dents(fd, 10)))


def dents(fd, room):
    """Names with the place behind each, as getdents64 tells them."""
    buffer = ctypes.create_string_buffer(room)
    length = raw("syscall", 217, fd, ctypes.byref(buffer), room)
    entries, place = [], 0
    while place < length:
        _, behind, size, _ = struct.unpack_from("<QqHB", buffer, place)
        name = buffer.raw[place + 19 : place + size].split(b"\0")[0].decode()
        entries.append((name, behind))
        place += size
    return entries


def gone(root, handle):
    """Opens a handle until it is stale: FUSE releases a closed file after close(2) has returned."""
    for _ in range(200):
        os.close(raw("open_by_handle_at", root, handle, os.O_RDONLY))
        time.sleep(0.01)
    return "never"


@part
def unnamed():
    """Files that never had a name, or have lost it, and handles."""
    fresh("tmpfile")
    for flags in [os.O_RDWR, os.O_WRONLY, os.O_RDWR | os.O_EXCL]:
        fd = os.open(at(), os.O_TMPFILE | flags, 0o6644)
        os.write(fd, b"unnamed")
        s = os.fstat(fd)
        say("is", f"{s.st_mode:o} {s.st_nlink} {s.st_size}")
        path = f"/proc/self/fd/{fd}"
        call("link", raw, "linkat", -100, bytes_of(path), -100, bytes_of(at(f"named{flags}")), 0x400)
        call("link again", raw, "linkat", -100, bytes_of(path), -100, bytes_of(at(f"again{flags}")), 0x400)
        say("links", os.fstat(fd).st_nlink)
        os.close(fd)
        say("tree", tree())
    fresh("unlinked")
    fd = os.open(put("f"), os.O_RDWR)
    os.unlink(at("f"))
    call("link", raw, "linkat", -100, bytes_of(f"/proc/self/fd/{fd}"), -100, bytes_of(at("g")), 0x400)
    call("write", os.write, fd, b"still")
    call("truncate", os.ftruncate, fd, 100_000)
    call("fallocate", fallocate, fd, 0, 0, 200_000)
    call("chmod", os.fchmod, fd, 0o755)
    call("xattr", os.setxattr, fd, "user.x", b"y")
    call("links", lambda: os.fstat(fd).st_nlink)
    call("read", os.pread, fd, 5, 0)
    os.close(fd)
    fresh("replaced")
    fd, _ = os.open(put("f"), os.O_RDWR), put("g", b"other")
    os.rename(at("g"), at("f"))
    call("read", os.pread, fd, 5, 0)
    call("links", lambda: os.fstat(fd).st_nlink)
    os.close(fd)
    fresh("handles")
    for name in ["f", "d"]:
        path = put(name) if name == "f" else folder(name)
        handle = ctypes.create_string_buffer(struct.pack("<Ii", 128, 0) + bytes(128))
        mount = ctypes.c_int()
        call("get", raw, "name_to_handle_at", -100, bytes_of(path), handle, ctypes.byref(mount), 0)
        root = os.open(ROOT, os.O_RDONLY)
        fd = raw("open_by_handle_at", root, handle, os.O_RDONLY)
        say("same", os.fstat(fd).st_ino == os.stat(path).st_ino)
        os.close(fd)
        (os.unlink if name == "f" else os.rmdir)(path)
        call("gone", gone, root, handle)
        os.close(root)
    small = ctypes.create_string_buffer(struct.pack("<Ii", 0, 0) + bytes(128))
    call("no room", raw, "name_to_handle_at", -100, bytes_of(at()), small, ctypes.byref(ctypes.c_int()), 0)


@part
def links():
    """As many names as a file can have."""
    fresh("most")
    put("f")
    answer, count = "ok", 1
    while answer == "ok" and count < 66_000:
        count += 1
        answer = outcome(os.link, at("f"), at(f"l{count}"))
    say("last", f"{count} {answer} {os.stat(at('f')).st_nlink}")
    call("rename over", os.rename, at("l2"), at("l3"))
    call("same after", lambda: os.stat(at("f")).st_nlink)
