"""Rewrites a file by asynchronous O_DIRECT writes while two processes read it through the page cache.

Usage: python3 rewrite.py FILE ROUNDS

Prints how many of the buffered reads, each after a write, showed older data.
"""

import ctypes, mmap, os, platform, sys

SIZE = 640 << 10
# io_setup, io_submit, io_getevents: Python has no name for them.
NUMBERS = {"x86_64": (206, 209, 208), "aarch64": (0, 2, 4), "riscv64": (0, 2, 4)}
PWRITE = 1


class Command(ctypes.Structure):
    """struct iocb of a little-endian machine."""

    _fields_ = [
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_uint32),
        ("opcode", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("fd", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("event_fd", ctypes.c_uint32),
    ]


class Event(ctypes.Structure):
    """struct io_event."""

    _fields_ = [
        ("data", ctypes.c_uint64),
        ("command", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("result2", ctypes.c_int64),
    ]


def read_for_ever(path):
    while True:
        fd = os.open(path, os.O_RDONLY)
        for offset in range(0, SIZE, 4096):
            os.pread(fd, 4096, offset)
        os.close(fd)


def buffered(path):
    fd = os.open(path, os.O_RDONLY)
    data = os.pread(fd, SIZE, 0)
    os.close(fd)
    return data


def write(context, fd, memory):
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    command = Command(opcode=PWRITE, fd=fd, buffer=address, size=SIZE)
    commands, event, one = (ctypes.c_void_p * 1)(ctypes.addressof(command)), Event(), ctypes.c_long(1)
    assert SYSCALL(SUBMIT, context, one, commands) == 1, ctypes.get_errno()
    assert SYSCALL(GETEVENTS, context, one, one, ctypes.byref(event), None) == 1
    assert event.result == SIZE, event.result


if platform.machine() not in NUMBERS:
    print("skipped: no numbers of system calls for", platform.machine())
    sys.exit(0)
SETUP, SUBMIT, GETEVENTS = NUMBERS[platform.machine()]
SYSCALL = ctypes.CDLL(None, use_errno=True).syscall
path, rounds = sys.argv[1], int(sys.argv[2])
context = ctypes.c_ulong(0)
if SYSCALL(SETUP, 8, ctypes.byref(context)) != 0:
    print("skipped: io_setup:", os.strerror(ctypes.get_errno()))
    sys.exit(0)
memories = [mmap.mmap(-1, SIZE) for _ in range(2)]
for memory, byte in zip(memories, (0x55, 0xAA)):
    memory.write(bytes([byte]) * SIZE)
fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
os.pwrite(fd, memories[0], 0)
readers, stale = [], 0
try:
    for _ in range(2):
        readers.append(os.fork())
        if readers[-1] == 0:
            read_for_ever(path)
    for number in range(rounds):
        memory = memories[number % 2]
        write(context, fd, memory)
        stale += buffered(path) != memory[:]
finally:
    for reader in filter(None, readers):
        os.kill(reader, 9)
        os.waitpid(reader, 0)
print(f"stale: {stale} of {rounds}")
