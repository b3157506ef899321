"""The marker variables of CPython on Linux x86_64, written down apart from gpuenv's own."""


def linux_markers(python):
    """Return the variables of PEP 508 for a full version of Python, such as 3.12.4."""
    return {
        "implementation_name": "cpython",
        "implementation_version": python,
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": python,
        "python_version": ".".join(python.split(".")[:2]),
        "sys_platform": "linux",
    }
