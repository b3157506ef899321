"""A report for a bug tracker, from plain data, with what names a person, a machine or a secret taken out.

What is known to be a name (of this user, of this host) is taken out wherever it stands; what is not known by itself is
recognized by its shape or by what stands before it: tokens of the well-known kinds, the password and the query of a
URL, the value of password=..., addresses. In doubt a text is taken out: versions of four numbers, which look like
addresses, are spared by `Names.versions`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..model import Value

# The variables that say how libraries are found and how they behave; no other one is even named.
PREFIXES = ("LD_", "CUDA_", "CUDNN_", "NVIDIA_", "XLA_", "TF_", "JAX_", "PYTORCH_", "CONDA_")
ALONE = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")
FOREIGN = ("TF_VAR_", "TF_TOKEN_", "TF_CLI_")  # Terraform's, not TensorFlow's
# Accounts and hosts of images and clouds, which name nobody.
COMMON = frozenset({"root", "user", "ubuntu", "admin", "nobody", "docker", "runner", "jovyan", "vscode", "localhost"})
GONE = "***"
_SECRET_NAME = re.compile(
    r"token|secret|passw|passphrase|pwd|key|credential|auth|cookie|signature|session", re.IGNORECASE
)

_VALUE = r"(\"[^\"]*\"|'[^']*'|[^\s\"',;&|]+)"
_NAMED = r"[\w.-]*(?:token|secret|passw(?:or)?d|passwd|passphrase|pwd|credentials?|api[-_]?key|access[-_]?key|cookie)"
_UUID = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
_SHAPES: tuple[tuple[str, str], ...] = (
    # Whole blocks first, then what carries a secret by its name, then what looks like one.
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
    # Long, of letters and digits, and no mangled C++ name.
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
    """What is known to be taken out: this user's names and home folders, this host's names.

    `versions` are texts of four numbers that are versions and no addresses.
    """

    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()
    versions: frozenset[str] = frozenset()


def is_secret(name: str) -> bool:
    """Whether the value of a variable or a field of this name is taken out unseen."""
    return _SECRET_NAME.search(name) is not None


def variables(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that matter, sorted; the values of those that are secret by their name are taken out."""
    return {
        name: GONE if is_secret(name) else value
        for name, value in sorted(env.items())
        if (name.startswith(PREFIXES) and not name.startswith(FOREIGN)) or name in ALONE
    }


def scrubbed(text: str, names: Names) -> str:
    """The text without what names a person, a machine or a secret."""
    for home in sorted(names.homes, key=len, reverse=True):
        if home.strip("/\\"):
            text = re.sub(rf"{re.escape(home.rstrip('/'))}(?![\w-])", "~", text)
    for pattern, instead in _COMPILED:
        text = pattern.sub(instead, text)
    text = _QUAD.sub(lambda match: _address(match, names.versions), text)
    for instead, known in (("HOST", names.hosts), ("USER", names.users)):
        for name in _worth(known):
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", instead, text, flags=re.IGNORECASE)
    return text


def _worth(known: Iterable[str]) -> list[str]:
    """Names that name somebody, the longer ones first: one may hold another."""
    return sorted({name for name in known if name and name.lower() not in COMMON}, key=lambda one: (-len(one), one))


def _address(match: re.Match[str], versions: Iterable[str]) -> str:
    is_address = all(int(part) < 256 for part in match.groups())
    return "ADDRESS" if is_address and match[0] not in versions and not match[0].startswith("127.") else match[0]


def clean(value: Any, names: Names) -> Any:
    """Plain data (dicts, lists, texts, numbers) with every text in it scrubbed, keys too.

    The UUID and the serial number of a device are left out, and so are fields that are secret by their name.
    """
    if isinstance(value, str):
        return scrubbed(value, names)
    if isinstance(value, Mapping):
        return {
            scrubbed(str(key), names): GONE if isinstance(one, str) and is_secret(str(key)) else clean(one, names)
            for key, one in value.items()
            if key not in ("uuid", "serial")
        }
    if isinstance(value, (list, tuple)):
        return [clean(one, names) for one in value]
    return value


def report(title: str, sections: Sequence[tuple[str, Sequence[str]]], data: Mapping[str, Any], names: Names) -> str:
    """One Markdown text: the sections as they are read by people, then all data as JSON."""
    import json

    parts = [f"# {scrubbed(title, names)}", ""]
    for heading, lines in sections:
        text = "\n".join(scrubbed(line, names) for line in lines)
        parts += [f"## {heading}", "", *_fenced(text, "text"), ""]
    document = json.dumps(clean(data, names), indent=1)
    parts += ["<details><summary>All of it as JSON</summary>", "", *_fenced(document, "json"), "", "</details>", ""]
    return "\n".join(parts)


def _fenced(text: str, kind: str) -> list[str]:
    """A code block whose fence is longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{kind}", text, fence]
