"""Make a report for a bug tracker, without what names a person, a machine or a secret.

Known names (of this user and of this host) are replaced wherever they occur. Anything else is
recognized by its shape or by the text before it: well-known tokens, the password and the query of
a URL, the value of password=..., addresses. In doubt a text is replaced. Versions of four numbers
look like addresses; `Names.versions` keeps them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from ..model import Value

# The variables that control how libraries are found and how they behave. No other one is named.
PREFIXES = ("LD_", "CUDA_", "CUDNN_", "NVIDIA_", "XLA_", "TF_", "JAX_", "PYTORCH_", "CONDA_")
ALONE = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")
FOREIGN = ("TF_VAR_", "TF_TOKEN_", "TF_CLI_")  # Terraform's, not TensorFlow's
# Accounts and hosts of images and clouds, which identify nobody.
COMMON = frozenset(
    {
        "admin",
        "docker",
        "jovyan",
        "localhost",
        "nobody",
        "root",
        "runner",
        "ubuntu",
        "user",
        "vscode",
    }
)
GONE = "***"
LEFT_OUT = ("uuid", "serial")  # fields of a device
_SECRET_NAME = re.compile(
    r"token|secret|passw|passphrase|pwd|key|credential|auth|cookie|signature|session",
    re.IGNORECASE,
)

_VALUE = r"(\"[^\"]*\"|'[^']*'|[^\s\"',;&|]+)"
_NAMED = (
    r"[\w.-]*(?:token|secret|passw(?:or)?d|passwd|passphrase|pwd|credentials?|api[-_]?key|"
    r"access[-_]?key|cookie)"
)
_UUID = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
_SHAPES: tuple[tuple[str, str], ...] = (
    # First whole blocks, then values whose name is that of a secret, then texts that look like one.
    (r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", GONE),
    (r"(?i)\b(bearer|basic|token)\s+[A-Za-z0-9._~+/=-]{6,}", rf"\1 {GONE}"),
    (r"(://)[^\s:/@]+:[^\s@]+@", rf"\1{GONE}@"),
    (r"(://)[^/\s]*@", rf"\1{GONE}@"),
    (r"([?&;][\w.~%-]+=)[^&;\s\"'<>)]+", rf"\1{GONE}"),
    (rf"(?i)({_NAMED}[\w-]*[\"']?\s*[=:]\s*){_VALUE}", rf"\1{GONE}"),
    (rf"(?i)\b([\w-]*key[\w-]*=){_VALUE}", rf"\1{GONE}"),
    (rf"(?i)(--?{_NAMED}[\w-]*\s+){_VALUE}", rf"\1{GONE}"),
    (r"(?i)(authorization[\"']?\s*[=:]\s*)[^\r\n]+", rf"\1{GONE}"),
    (r"\beyJ[\w-]{5,}(?:\.[\w-]*){1,4}", GONE),  # JSON web tokens
    (r"\b(?:gh[oprsu]_|github_pat_|hf_|npm_|dckr_pat_|ya29\.)[\w.-]{10,}", GONE),
    (r"\b(?:glpat-|nvapi-|sk-|xox[abeoprs]-|xapp-|wandb_v\d_)[\w-]{10,}", GONE),
    (r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}\b", GONE),
    (r"\bAIza[\w-]{20,}", GONE),
    (rf"\b(?:(?:GPU|MIG|MIG-GPU)-)?{_UUID}(?:/\d+/\d+)?", "UUID"),
    (r"\b(?:MIG-GPU|GPU|MIG)-[0-9a-fA-F-]{2,}(?:/\d+/\d+)?(?!\w)", "UUID"),
    # Long texts of letters and digits, except mangled C++ names.
    (r"(?<![A-Za-z0-9_])(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{32,}(?![A-Za-z0-9])", GONE),
    (r"[\w.+%-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}", "EMAIL"),
    (r"(://)(?!\*|HOST)(?:\[[^\]\s]*\]|[^/\s:\"'<>)?#@]+)", r"\1HOST"),
    (rf"(://{re.escape(GONE)}@)[^/\s:\"'<>)?#]+", r"\1HOST"),
    (r"(?i)\b[\w-]+(?:\.[\w-]+)*\.(?:internal|corp|lan|intranet|localdomain)\b", "HOST"),
    (r"(?<![\w:.])(?:[0-9a-fA-F]{1,4}:){5,7}[0-9a-fA-F]{1,4}(?![\w:])", "ADDRESS"),
    (r"(?<![\w:.])(?=[0-9a-fA-F:]*[0-9a-fA-F])[0-9a-fA-F:]*::[0-9a-fA-F:]*(?![\w:])", "ADDRESS"),
    (r"(?:/home|/Users|/export/home|/usr/home)/[^/\s:;,\"'<>)\]]+", "~"),
    (r"(?i)[A-Z]:\\Users\\[^\\\s:;,\"'<>)\]]+", "~"),
    (r"(?<![\w.~/-])/root(?![\w.-])", "~"),
)
_COMPILED = tuple((re.compile(pattern), text) for pattern, text in _SHAPES)
_QUAD = re.compile(r"(?<![\w.])(?<!==)(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?![\w.]*\d)")


class Names(Value):
    """Known names: of this user, of this host, and of home folders.

    `versions` are texts of four numbers that are versions and not addresses.
    """

    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()
    versions: frozenset[str] = frozenset()


# ---- texts --------------------------------------------------------------------------------------


def is_secret(name: str) -> bool:
    """Return whether the value of a variable or a field with this name is a secret."""
    return _SECRET_NAME.search(name) is not None


def variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return the relevant variables, sorted. The value of a secret one is replaced."""
    return {
        name: GONE if is_secret(name) else value
        for name, value in sorted(env.items())
        if name in ALONE or (name.startswith(PREFIXES) and not name.startswith(FOREIGN))
    }


def scrubbed(text: str, names: Names) -> str:
    """Return the text without what names a person, a machine or a secret."""
    for home in sorted(names.homes, key=len, reverse=True):
        if home.strip("/\\"):
            text = re.sub(rf"{re.escape(home.rstrip('/'))}(?![\w-])", "~", text)
    for pattern, replacement in _COMPILED:
        text = pattern.sub(replacement, text)

    def address(match: re.Match[str]) -> str:
        numbers = [int(part) for part in match.groups()]
        is_version = match[0] in names.versions or max(numbers) > 255
        return match[0] if is_version or numbers[0] == 127 else "ADDRESS"

    text = _QUAD.sub(address, text)
    text = _without_names(text, names.hosts, "HOST")
    return _without_names(text, names.users, "USER")


def _without_names(text: str, known: Iterable[str], replacement: str) -> str:
    """Replace each name where it is a whole word. Names that identify nobody stay."""
    names = {name for name in known if name and name.lower() not in COMMON}
    # Longer names first: one may hold another.
    for name in sorted(names, key=lambda name: (-len(name), name)):
        pattern = rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])"
        text = re.sub(pattern, replacement, text, flags=re.IGNORECASE)
    return text


# ---- data ---------------------------------------------------------------------------------------


def clean(value: object, names: Names) -> object:
    """Return plain data (dicts, lists, texts, numbers) with every text scrubbed, keys too.

    The UUID and the serial number of a device are left out, and the texts of fields whose name is
    that of a secret are replaced.
    """
    if isinstance(value, str):
        return scrubbed(value, names)
    if isinstance(value, Mapping):
        return {
            scrubbed(str(name), names): GONE
            if isinstance(item, str) and is_secret(str(name))
            else clean(item, names)
            for name, item in value.items()
            if name not in LEFT_OUT
        }
    if isinstance(value, (list, tuple)):
        return [clean(item, names) for item in value]
    return value


# ---- the report ---------------------------------------------------------------------------------


def report(
    title: str,
    sections: Sequence[tuple[str, Sequence[str]]],
    data: Mapping[str, object],
    names: Names,
) -> str:
    """Return a Markdown text: the sections as text, and then all data as JSON.

    Args:
        sections: pairs of a heading and its lines.
        data: plain data for JSON.
    """
    parts = [f"# {scrubbed(title, names)}", ""]
    for heading, lines in sections:
        text = "\n".join(scrubbed(line, names) for line in lines)
        parts += [f"## {heading}", "", *_fenced(text, "text"), ""]
    document = json.dumps(clean(data, names), indent=1)
    parts += ["<details><summary>Everything as JSON</summary>", ""]
    parts += [*_fenced(document, "json"), "", "</details>", ""]
    return "\n".join(parts)


def _fenced(text: str, kind: str) -> list[str]:
    """Return a code block whose fence is longer than any run of backticks in it."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{kind}", text, fence]
