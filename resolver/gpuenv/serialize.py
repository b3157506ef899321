"""Read the user's files; convert values to plain data for JSON and TOML, and data to a Host."""

from __future__ import annotations

import errno
import gc
import hashlib
import json
import math
import os
import re
import stat
import threading
import time
import tomllib
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from .errors import InputError, error_text
from .model import Host, Value, parse_release

if TYPE_CHECKING:
    from io import FileIO

MAX_INPUT_BYTES = 64 << 20  # limit for a file that a user writes or names
INPUT_SECONDS = 120.0  # for a pipe to end
_WRITER_SECONDS = 1.0  # for another process to open a pipe
_PAUSE = 0.01  # seconds
_CHUNK = 1 << 20
_DEEPEST_KEY = 200
_DEEP_KEY = rf"""(?<![\w-])(?:(?:[\w-]++|"[^"]*+"|'[^']*+')[ \t]*+\.[ \t]*+){{{_DEEPEST_KEY}}}"""


def read_input(path: str) -> bytes:
    """Return the content of a file that the user or a repository names.

    It may be a pipe: `-r <(command)`. A pipe that no process writes to is empty.

    Raises:
        OSError: it cannot be read, is larger than MAX_INPUT_BYTES, or is a pipe that does not end.
    """
    if "\0" in path:
        raise OSError(errno.EINVAL, "a name has no null character", path)
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags), "rb", buffering=0) as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            content = file.read(MAX_INPUT_BYTES + 1)
        else:
            content = _read_pipe(file, path)
    if len(content) > MAX_INPUT_BYTES:
        message = f"it is larger than {MAX_INPUT_BYTES >> 20} MiB"
        raise OSError(errno.EFBIG, message, path)
    return content


def _read_pipe(file: FileIO, path: str) -> bytes:
    """Read until the other end is closed, or the content is one byte too long."""
    content = bytearray()
    begin = time.monotonic()
    while len(content) <= MAX_INPUT_BYTES:
        chunk = file.read(_CHUNK)  # None: there is nothing yet
        seconds = time.monotonic() - begin
        if chunk == b"" and (content or seconds > _WRITER_SECONDS):
            break
        if seconds > INPUT_SECONDS:
            message = f"it did not end within {INPUT_SECONDS:.0f} s"
            raise OSError(errno.ETIMEDOUT, message, path)
        content += chunk or b""
        if not chunk:
            time.sleep(_PAUSE)
    return bytes(content)


def parse_toml(text: str) -> dict[str, Any]:
    """Return the content of a TOML text. ValueError if it is not TOML."""
    lines = (line for line in text.splitlines() if line.count(".") >= _DEEPEST_KEY)
    if any(re.search(_DEEP_KEY, line) for line in lines):  # tomllib takes minutes for such a key
        raise ValueError(f"a key has more than {_DEEPEST_KEY} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def load_yaml(text: str | bytes) -> Any:
    """Return the content of a YAML text.

    Raises:
        ValueError: it is not YAML.
        RecursionError: it is nested too deeply.
    """
    import yaml  # heavy

    # Python reports what a collection near the recursion limit cannot finish.
    collects = gc.isenabled()
    gc.disable()
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(error_text(error)) from None
    finally:
        if collects:
            gc.enable()


def dump_yaml(document: object) -> str:
    """Return data as YAML, whose keys stay in their order and whose texts are one line each."""
    import yaml  # heavy

    return str(yaml.safe_dump(document, sort_keys=False, width=math.inf))


def to_plain(value: object) -> Any:
    """Return values, tuples and pairs as data for JSON; fields at their default are left out."""
    if isinstance(value, Value):
        names = dict(zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True))
        value = {names[name]: item for name, item in value.non_defaults().items()}
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_plain(item) for item in value]
    return value


def canonical_json(value: object) -> str:
    """Return JSON text with sorted keys and no spaces, for digests.

    What JSON has no form for is written as its `str`.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def file_digest(path: str) -> str:
    """Return the SHA-256 of a file, as 64 hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def text_digest(text: str) -> str:
    """Return the SHA-256 of a text in UTF-8, as 64 hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_toml(path: str) -> dict[str, Any]:
    """Return the content of a TOML file of the user.

    Raises:
        InputError: the file cannot be read or is not TOML.
    """
    try:
        return parse_toml(read_input(path).decode())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{path}: is not TOML: {error}") from None


_Kind = TypeVar("_Kind")
_first_use = threading.Lock()


def decode(data: bytes, kind: type[_Kind], form: ModuleType = msgspec.json) -> _Kind:
    """Return the value of a type that bytes have, in any thread.

    Args:
        data: the bytes.
        kind: the type.
        form: msgspec.json or msgspec.msgpack.

    Raises:
        msgspec.DecodeError: the bytes have no such value.
    """
    hashable: Any = kind  # mypy thinks that some types are not
    return cast(_Kind, _decoder(hashable, form).decode(data))


@cache
def _decoder(kind: type[Any], form: ModuleType) -> Any:
    # HACK: two threads that use a type for the first time crash msgspec 0.22, because it shows what
    # it knows of a type before that is complete.
    with _first_use:
        return form.Decoder(kind)


def from_plain(data: object, kind: type[_Kind], where: str) -> _Kind:
    """Return the value that `to_plain` made the data of.

    Args:
        data: The data.
        kind: The type of the value.
        where: The place of the data, for messages.

    Raises:
        ValueError: names the field that is missing, unknown or of the wrong kind.
    """
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        text = error_text(error)
        if "`$" not in text:  # an error of the data as a whole has no place
            text += " - at `$`"
        if not where:
            text = text.replace("`$.", "`")
        raise ValueError(text.replace("`$", f"`{where}")) from None


def host_from_plain(data: object) -> Host:
    """Return the Host that `to_plain` made the data of. ValueError as of `from_plain`."""
    host = from_plain(data, Host, "host")
    if host.driver is not None:
        parse_release(host.driver)
    return host
