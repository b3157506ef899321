"""Settings that make another tool take the builds that gpuenv takes on a host.

The tools know one driver and one compute capability. Where these do not express what gpuenv would
do, there are no settings: an InexpressibleError gives the reason.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InexpressibleError, InputError
from ..model import ComputeCapability, Host, Plan, Value, show_pair
from ..resolve.conda.virtual_packages import SUBDIRS
from .pylock import most_used_index

_PYTORCH = "https://download.pytorch.org/whl/"
_WITHOUT_SETTINGS = "install the lock with gpuenv sync"


class ToolSettings(Value):
    """Settings for a tool.

    Attributes:
        variables: (name, value) of environment variables.
        constraints: the lines of a file of constraints.
        constraints_variable: the variable that names that file; "" where there is none.
        table: TOML for the tool's own file.
    """

    variables: tuple[tuple[str, str], ...] = ()
    constraints: tuple[str, ...] = ()
    constraints_variable: str = ""
    table: str = ""


def settings(tool: str, host: Host, plan: Plan | None, labels: Sequence[str] = ()) -> ToolSettings:
    """Return the settings for a tool.

    Args:
        tool: uv, conda, pixi or pip.
        host: the host.
        plan: what gpuenv takes; None leaves out what depends on packages.
        labels: the variants that uv would take for the variant wheels of the plan, in their order.

    Raises:
        InexpressibleError: the settings of the tool cannot express it.
        InputError: the tool has settings for packages only, and there is no plan.
    """
    if tool == "uv":
        return _for_uv(host, plan, labels)
    if tool == "pip":
        return _for_pip(plan)
    if tool == "pixi":
        return ToolSettings(table=pixi_platform(host))
    variables = []
    if host.glibc is not None:
        variables.append(("CONDA_OVERRIDE_GLIBC", show_pair(host.glibc)))
    cuda, arch = "", ""  # hides a virtual package
    capability = capability_of(host, "conda")
    if capability is not None:
        cuda, arch = _driver_cuda_of(host, "conda"), show_pair(capability)
    variables += [("CONDA_OVERRIDE_CUDA", cuda), ("CONDA_OVERRIDE_CUDA_ARCH", arch)]
    return ToolSettings(variables=tuple(variables))


def capability_of(host: Host, tool: str) -> ComputeCapability | None:
    """Return the one compute capability that stands for all devices; None without a GPU.

    Within one major version it is the lowest one: code for it runs on the others.

    Raises:
        InexpressibleError: no compute capability does.
    """
    capabilities = set(host.capabilities)
    known = [capability for capability in capabilities if capability is not None]
    if len(known) < len(capabilities):
        raise InexpressibleError(
            f"{tool} needs a compute capability, and that of a GPU is not known",
            hint="name the GPUs: --gpu",
        )
    if len({major for major, _ in known}) > 1:
        names = " and ".join(map(show_pair, sorted(known)))
        raise InexpressibleError(
            f"{tool} knows one compute capability, and this host has GPUs of {names}",
            hint=_WITHOUT_SETTINGS,
        )
    return min(known, default=None)


def _driver_cuda_of(host: Host, tool: str) -> str:
    """Return the CUDA version of the driver, which a tool needs."""
    if host.driver_cuda is None:
        raise InputError(
            f"{tool} needs the CUDA version of the driver, and no driver is known",
            hint="name the driver: --driver 580.65.06",
        )
    return show_pair(host.driver_cuda)


def _for_uv(host: Host, plan: Plan | None, labels: Sequence[str]) -> ToolSettings:
    variables = []
    if host.gpus and host.driver:
        variables.append(("UV_CUDA_DRIVER_VERSION", host.driver))
    if plan is None or plan.variants:
        capability = capability_of(host, "uv")
        if capability is not None:  # uv reads the variables of nvidia-variant-provider
            prefix = "NV_VARIANT_PROVIDER_FORCE"
            variables.append((f"{prefix}_CUDA_DRIVER_VERSION", _driver_cuda_of(host, "uv")))
            variables.append((f"{prefix}_SM_ARCH", show_pair(capability)))
    if plan is None:
        return ToolSettings(variables=tuple(variables))
    for variant, label in zip(plan.variants, labels, strict=True):
        if label != variant.label:
            other = f"the variant {label}" if label else "a wheel that is no variant"
            raise InexpressibleError(
                f"uv would take {other} of {variant.name}, and gpuenv takes {variant.label}",
                hint=_WITHOUT_SETTINGS,
            )
    if plan.variants:
        variables.append(("UV_PREVIEW_FEATURES", "wheel-variants"))
    for pin in plan.pins:
        if pin.wheel.name == "torch" and pin.wheel.index.startswith(_PYTORCH):
            backend = pin.wheel.index.removeprefix(_PYTORCH).strip("/")
            variables.append(("UV_TORCH_BACKEND", backend))
    return _with_constraints(plan, variables, "UV_CONSTRAINT")


def _for_pip(plan: Plan | None) -> ToolSettings:
    if plan is None:
        raise InputError(
            "pip has no settings for a driver or a GPU",
            hint="name packages, and -o for the file of their versions",
        )
    if plan.variants:
        name = plan.variants[0].name
        raise InexpressibleError(
            f"pip takes no variant wheel, and {name} is one", hint=_WITHOUT_SETTINGS
        )
    default = most_used_index(plan.pins)
    indexes = {pin.wheel.index for pin in plan.pins} - {default}
    others = sorted(index for index in indexes if index.startswith("http"))
    variables = [("PIP_EXTRA_INDEX_URL", " ".join(others))] if others else []
    return _with_constraints(plan, variables, "PIP_CONSTRAINT")


def _with_constraints(plan: Plan, variables: list[tuple[str, str]], name: str) -> ToolSettings:
    return ToolSettings(
        variables=tuple(variables),
        constraints=tuple(f"{pin.wheel.name}=={pin.wheel.version}" for pin in plan.pins),
        constraints_variable=name,
    )


def pixi_platform(host: Host, *, with_capability: bool = True) -> str:
    """Return the entry of a host in `platforms` of pixi's [workspace], as TOML.

    Args:
        host: the host.
        with_capability: whether to name the compute capability, too.
    """
    fields = ['name = "gpuenv"', f'platform = "{SUBDIRS[host.platform]}"']
    if host.gpus and host.driver_cuda is not None:
        cuda = f'"{show_pair(host.driver_cuda)}"'
        capability = capability_of(host, "pixi") if with_capability else None
        if capability is not None:
            cuda = f'{{ driver = {cuda}, arch = "{show_pair(capability)}" }}'
        fields.append(f"cuda = {cuda}")
    if host.glibc is not None:
        fields.append(f'glibc = "{show_pair(host.glibc)}"')
    return f"[workspace]\nplatforms = [{{ {', '.join(fields)} }}]\n"
