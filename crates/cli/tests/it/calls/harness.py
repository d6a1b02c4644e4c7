"""Calls on a directory, and what they answered, a line each: run once on the kernel's ext4 and once on a
mount, the lines must be the same.

Usage: python3 calls.py DIR PART…   (root; DIR is the root of a mount)

A line is `part | case | call -> answer`: an errno by name, or what was returned. Numbers that need not be
the same (inodes, offsets in directories, times) are never printed, but whether they are as they should be.
"""

import contextlib, ctypes, errno, fcntl, hashlib, mmap, os, shutil, socket, stat, struct, sys, time

LIBC = ctypes.CDLL(None, use_errno=True)
ROOT = sys.argv[1]
PARTS = {}
# uid, gid, further groups. ann and ben share a group.
USERS = {"root": (0, 0, []), "ann": (1001, 1001, [3000]), "ben": (1002, 1002, [3000, 3001])}
STATE = {"part": "", "case": ""}
# Python has no name for it.
CLOCK_REALTIME_COARSE = 5


def part(function):
    PARTS[function.__name__] = function
    return function


def say(what, answer):
    print(f"{STATE['part']} | {STATE['case']} | {what} -> {answer}")


def name_of(error):
    return errno.errorcode.get(error.errno, str(error.errno))


def call(what, function, *arguments, **more):
    """Says what a call answers; hands it on, or None."""
    try:
        answer = function(*arguments, **more)
    except OSError as error:
        say(what, name_of(error))
        return None
    shown = "ok" if answer is None else answer
    say(what, shown if not isinstance(answer, bytes) or len(answer) < 80 else f"{len(answer)} bytes")
    return True if answer is None else answer


def outcome(function, *arguments, **more):
    try:
        answer = function(*arguments, **more)
    except OSError as error:
        return name_of(error)
    return "ok" if answer is None else answer


@contextlib.contextmanager
def user(name):
    uid, gid, groups = USERS[name]
    os.setgroups(groups)
    os.setegid(gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups([])


def above():
    """What `..` is."""
    return os.path.join(ROOT, STATE["part"])


def at(*names):
    return os.path.join(above(), "in", *names)


def fresh(case):
    """An empty directory for a case, the one before removed."""
    STATE["case"] = case
    shutil.rmtree(above(), ignore_errors=True)
    for path in [above(), at()]:
        os.mkdir(path)
        os.chmod(path, 0o777)


def put(name, data=b"data", mode=0o644, owner="root"):
    path = at(name)
    with open(path, "wb") as file:
        file.write(data)
    uid, gid, _ = USERS[owner]
    os.chown(path, uid, gid)
    os.chmod(path, mode)
    return path


def folder(name, mode=0o755, owner="root"):
    path = at(name)
    os.mkdir(path)
    uid, gid, _ = USERS[owner]
    os.chown(path, uid, gid)
    os.chmod(path, mode)
    return path


def shown(path):
    """What can be seen of one file."""
    s = os.lstat(path)
    size = 0 if stat.S_ISDIR(s.st_mode) else s.st_size
    more = os.readlink(path) if stat.S_ISLNK(s.st_mode) else ""
    return f"{s.st_mode:o} {s.st_nlink} {s.st_uid}:{s.st_gid} {size} {s.st_rdev:x} {more}".strip()


def tree():
    """What can be seen of all below a case, as a short sum."""
    lines = [shown(above())]
    for top, folders, files in os.walk(above()):
        folders.sort()
        for name in sorted(folders + files):
            path = os.path.join(top, name)
            lines.append(f"{os.path.relpath(path, above())} {shown(path)}")
    return hashlib.sha1("\n".join(lines).encode()).hexdigest()[:12]


def raw(name, *arguments):
    """A function of the C library; its errno as an OSError."""
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    function = getattr(LIBC, name)
    function.restype = ctypes.c_long
    answer = function(*wide)
    if answer in (-1, 0xFFFFFFFF):
        raise OSError(ctypes.get_errno(), name)
    return answer


def bytes_of(path):
    return path.encode("utf-8", "surrogateescape")


def renameat2(one, other, flags):
    raw("renameat2", -100, bytes_of(one), -100, bytes_of(other), flags)


def fallocate(fd, mode, offset, length):
    raw("fallocate", fd, mode, offset, length)


def stamps(path):
    s = os.lstat(path)
    return {"a": s.st_atime_ns, "m": s.st_mtime_ns, "c": s.st_ctime_ns}


def age(*paths):
    """Makes times old, so that any change is seen."""
    for path in paths:
        os.utime(path, ns=(10**18, 10**18), follow_symlinks=False)
    # New files are dated by a clock that moves by ticks, and on a busy machine they may come late.
    latest = max(os.lstat(path).st_ctime_ns for path in paths)
    while time.clock_gettime_ns(CLOCK_REALTIME_COARSE) <= latest:
        time.sleep(0.001)


def changed(before, path, seen):
    now = stamps(path)
    return "".join(k for k in seen if now[k] != before[k]) or "none"


def timed(what, paths, function, *arguments, seen="amc"):
    """Says which times of which paths a call changes, as far as they are to be seen."""
    age(*paths)
    before = [stamps(path) for path in paths]
    answer = outcome(function, *arguments)
    told = [
        changed(b, path, seen) if os.path.lexists(path) else "gone" for b, path in zip(before, paths)
    ]
    kind = answer if answer in errno.errorcode.values() else "ok"
    say(what, f"{kind}: {' '.join(told)}")


IMMUTABLE, APPEND, NODUMP = 0x10, 0x20, 0x40


def flags_of(path, flags):
    """Sets these of a file's flags and clears the others, as chattr does (FS_IOC_GETFLAGS, FS_IOC_SETFLAGS)."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        old = struct.unpack("l", fcntl.ioctl(fd, 0x80086601, bytes(8)))[0]
        fcntl.ioctl(fd, 0x40086602, struct.pack("l", old & ~(IMMUTABLE | APPEND | NODUMP) | flags))
    finally:
        os.close(fd)


def with_fd(path, flags, function):
    fd = os.open(path, flags, 0o644)
    try:
        return function(fd)
    finally:
        os.close(fd)
