"""Write fat binaries byte by byte, and libraries that carry them.

gpuenv/binaries/device_code.py describes the layout.
"""

import struct
import subprocess

MAGIC = 0xBA55ED50
KINDS = {"ptx": 1, "sass": 2, "lto": 8}
SEVERAL = 0x100
FLAGS = {"a": 0x100000, "f": 0x200000, "": 0}
NAME = b"some/file_name.cu"


def header(image, payload, *, inner=None):
    """The header of one entry, or of several that are compressed together.

    `inner` is the offset of its payload.
    """
    kind, target = next((key, image[key]) for key in KINDS if key in image)
    number = target.rstrip("af")
    major, minor = (int(part) for part in image.get("language", "1.8").split("."))
    names = b""
    # Entries may have the name of their source after the 64 bytes; PTX has its options there too.
    if image.get("named"):
        names = NAME + b"\0" * (-len(NAME) % 8)
    names += bytes.fromhex(image.get("extra", ""))
    options = 64 + len(names) if kind == "ptx" else 0
    if options:
        names += struct.pack("<II", 64 + len(names) + 8, 4) + b"-O3".ljust(8, b"\0")
    start, length = (64, len(NAME)) if image.get("named") else (0, 0)
    place = 64 + len(names) if inner is None else inner
    flags = 0x11 | FLAGS[target.removeprefix(number)]
    head = struct.pack("<HHIQII", KINDS[kind], 0x101, place, payload, 0, options)
    head += struct.pack("<HHIII", minor, major, int(number), start, length)
    return head + struct.pack("<QQQ", flags, 0, 0) + names


def entry(image):
    """An entry and its payload, of an image or of several.

    {"sass": target, "size"} or {"ptx": target, "language", "size"}, maybe "named" or with "extra"
    bytes (hexadecimal) after its header; or {"several": [images]}, whose "count" and "total" may be
    said wrongly. The size of the payload is 40 bytes where none is given; a payload looks like a
    fat binary, to be passed over.
    """
    if "several" not in image:
        size = image.get("size", 40)
        return (
            header(image, size)
            + (struct.pack("<IHHQ", MAGIC, 1, 16, 256) * (size // 16 + 1))[:size]
        )
    heads, offset = b"", 0
    for one in image["several"]:
        heads += header(one, one.get("size", 40), inner=offset)
        offset += one.get("size", 40)
    length = 8 + len(heads)
    head = struct.pack("<HHIQII", SEVERAL, 0x101, 64 + length, 32, 30, 64)
    head += struct.pack("<IIQ", 1, 0, 0) + struct.pack(
        "<QQQ", 0x8011, 0, image.get("total", offset)
    )
    return (
        head
        + struct.pack("<II", image.get("count", len(image["several"])), length)
        + heads
        + b"\x28" * 32
    )


def binary(images, **header):
    """A fat binary; `header` changes fields of its header: magic, version, head, length."""
    data = b"".join(entry(image) for image in images)
    fields = {"magic": MAGIC, "version": 1, "head": 16, "length": len(data), **header}
    return (
        struct.pack("<IHHQ", *(fields[key] for key in ("magic", "version", "head", "length")))
        + data
    )


def content(parts):
    """What stands in a section, one part after another.

    {"binary": [images]} (aligned to 8 or to "align", other keys change its header), {"zeros": n},
    {"hex": ...}, or {"text": ...}, which ends in a zero.
    """
    data = b""
    for part in parts:
        if "binary" in part:
            changes = {key: value for key, value in part.items() if key not in ("binary", "align")}
            data += b"\0" * (-len(data) % part.get("align", 8)) + binary(part["binary"], **changes)
        else:
            data += bytes(part.get("zeros", 0)) + bytes.fromhex(part.get("hex", ""))
            data += part["text"].encode() + b"\0" if "text" in part else b""
    return data


def library(path, sections, flags=()):
    """A shared library that gcc makes of sections, each aligned to 8, at `path`; its bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source = []
    for number, (name, data) in enumerate(sections.items()):
        part = path.parent / f"{path.name}.{number}"
        part.write_bytes(data)
        access = {".text": "ax", ".data": "aw"}.get(name, "a")
        source.append(f'.section {name},"{access}",@progbits\n.balign 8\n.incbin "{part}"\n')
    source.append('.section .note.GNU-stack,"",@progbits\n')
    command = [
        "gcc",
        "-shared",
        "-nostdlib",
        *flags,
        "-x",
        "assembler",
        "-o",
        path,
        "-",
        "-x",
        "none",
    ]
    subprocess.run(command, input="".join(source), text=True, check=True)
    return path.read_bytes()
