"""Flags that the environment or the user's config file gives.

A flag of the command line comes first, then the variable GPUENV_<FLAG>, then the table of the
command in the config file, then the top of that file.
"""

from __future__ import annotations

import os
from argparse import Action, Namespace
from collections.abc import Callable, Mapping

from platformdirs import user_config_dir

from ..errors import InputError
from .parser import Parser

_NOT_SETTABLE = ("--help", "--debug")
_FALSE = ("", "0", "false", "no")
Values = dict[str, object]  # by the name of the argument


def config_path(env: Mapping[str, str]) -> str | None:
    """Return the user's config file; None if the variables say that there is none."""
    if "GPUENV_CONFIG_FILE" in env:
        return env["GPUENV_CONFIG_FILE"] or None
    return os.path.join(user_config_dir("gpuenv", appauthor=False, roaming=True), "config.toml")


def find_defaults(
    name: str, parser: Parser, env: Mapping[str, str], all_flags: Callable[[], set[str]]
) -> Values:
    """Return the values of flags that variables and the config file give.

    Flags that have one are no longer required on the command line.

    Args:
        name: the command.
        parser: its parser.
        env: the environment variables.
        all_flags: returns the flags of all commands, to find misspelled settings.

    Raises:
        InputError: a value is of the wrong kind, or the config file cannot be read.
    """
    flags = parser.settable_flags(_NOT_SETTABLE)
    values = _from_config(name, flags, config_path(env), all_flags)
    for flag, action in flags.items():
        variable = "GPUENV_" + flag.removeprefix("--").replace("-", "_").upper()
        if variable in env:
            text = env[variable]
            values[action.dest] = _value(action, text, f"{variable}={text}")
    for action in flags.values():
        if action.dest in values:
            action.required = False
    return values


def apply_defaults(arguments: Namespace, parser: Parser, values: Values) -> None:
    """Set the arguments that the command line leaves at their defaults."""
    for name, value in values.items():
        if getattr(arguments, name) == parser.get_default(name):
            setattr(arguments, name, value)


def _from_config(
    name: str,
    flags: Mapping[str, Action],
    path: str | None,
    all_flags: Callable[[], set[str]],
) -> Values:
    if path is None or not os.path.isfile(path):
        return {}
    from ..serialize import read_toml

    document = read_toml(path)
    tables = [document]
    own = document.get(name)
    if isinstance(own, dict):
        tables.append(own)
    values: Values = {}
    for table in tables:
        for key, value in table.items():
            if isinstance(value, dict):
                continue
            flag = f"--{key.replace('_', '-')}"
            if flag in flags:
                values[flags[flag].dest] = _value(flags[flag], value, f"{path}: {key}")
            elif table is own or flag not in all_flags():
                hint = "a setting is a flag without its dashes"
                raise InputError(f"{path}: {key} is no flag of gpuenv", hint=hint)
    return values


def _value(action: Action, value: object, place: str) -> object:
    """Return the value of a flag; InputError if it is of the wrong kind."""
    if action.nargs == 0:
        return _switch(action, value, place)
    if isinstance(action.default, list):
        texts = value.split() if isinstance(value, str) else value
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InputError(f"{place}: must be texts")
        return texts
    if not isinstance(value, (str, int, float)) or isinstance(value, bool):
        raise InputError(f"{place}: must be a text")
    text = str(value)
    if action.choices is not None and text not in action.choices:
        raise InputError(f"{place}: must be one of {', '.join(map(str, action.choices))}")
    if not callable(action.type):
        return text
    try:
        return action.type(text)
    except ValueError:
        raise InputError(f"{place}: is not a value of {action.option_strings[-1]}") from None


def _switch(action: Action, value: object, place: str) -> object:
    """Return the value of a flag without an argument."""
    if isinstance(value, str):
        value = value.lower() not in _FALSE
    if not isinstance(value, bool):
        raise InputError(f"{place}: must be true or false")
    if action.const is None:
        return int(value)  # a count, such as --verbose
    return action.const if value else action.default
