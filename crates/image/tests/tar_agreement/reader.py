"""Prints what Python's tarfile reads of archives, a line a member."""

import hashlib
import math
import sys
import tarfile

LARGE = 16 << 20
KINDS = {
    tarfile.DIRTYPE: "d",
    tarfile.SYMTYPE: "l",
    tarfile.LNKTYPE: "h",
    tarfile.CHRTYPE: "c",
    tarfile.BLKTYPE: "b",
    tarfile.FIFOTYPE: "p",
}


def hexed(text):
    return text.encode("utf-8", "surrogateescape").hex() or "-"


def contents(archive, member):
    """The hash of the contents; "-" for what is too large to read here."""
    if member.size > LARGE:
        return "-"
    digest, length = hashlib.sha256(), 0
    file = tarfile.ExFileObject(archive, member)
    while piece := file.read(1 << 16):
        digest.update(piece)
        length += len(piece)
    if length != member.size:
        raise tarfile.ReadError("unexpected end of data")
    return digest.hexdigest()


def read(path):
    with tarfile.open(path, "r:", encoding="utf-8", errors="surrogateescape") as archive:
        for member in archive:
            kind = KINDS.get(member.type, "f")
            size, digest = (member.size, contents(archive, member)) if kind == "f" else (0, "-")
            print(
                "member", kind, member.mode & 0o7777, member.uid, member.gid,
                math.floor(member.mtime), size, digest, member.devmajor, member.devminor,
                hexed(member.name), hexed(member.linkname),
            )
        # A header that it cannot read ends an archive as zeroes do.
        with open(path, "rb") as file:
            file.seek(archive.offset)
            if file.read(512).strip(b"\0"):
                print("refused a header that cannot be read taken as the end")


for number in range(int(sys.argv[2])):
    print("archive", number)
    try:
        read(f"{sys.argv[1]}/{number}.tar")
    except Exception as error:
        print("refused", type(error).__name__, " ".join(str(error).split()))
