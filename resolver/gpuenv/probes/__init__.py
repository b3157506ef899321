"""Probes: scripts that the interpreter of the target environment runs.

They use the standard library, ctypes and at most one framework, run on CPython 3.8 and later, and
import nothing of gpuenv but other modules of this folder. verify/runner.py starts each probe in a
child process.

_run.py         starts a probe (see there why the folder is not on sys.path)
_common.py      all probes: steps, the answer, mapped libraries
_reference.py   the convolution of all probes: its inputs and its exact result
_framework.py   the course of a framework's probe, and the class that each framework fills in
_bindings.py    libcuda and libcudnn by ctypes, and the convolution with them
answers.py      the answers of the probes as types
interpreter.py  what only the interpreter of the environment knows
files.py        whether files are as recorded
cudnn.py        which cuDNN libraries are loaded, and from where
convolution.py  a convolution by cuDNN on one device, without a framework
module.py       a framework that has no probe of its own: import only
companion.py    the import of a distribution, its libraries, its operation on every device
operations.py   these operations, one function for each distribution
check.py        a check that another package brings
NAME.py         each other module: the framework NAME

The contract of a probe:

- Its one argument is a JSON object. That of a framework probe is {"import_name": str, "device":
  bool, "devices": int}. With "device" false it must not touch a GPU.
- Before each action it writes a line `gpuenv-step: TEXT` to stderr. After a crash or a hang the
  last of these lines names the action.
- It writes one line `gpuenv-probe: {JSON}` to stdout. Other lines there come from libraries and are
  ignored.
- An exception is an answer, too: {"failure": "TypeName: text"}.
- A framework probe answers with answers.FrameworkAnswer. Keys that do not apply are left out.
- Lines on stderr that say why a library continued without a GPU become part of a failure's text.

To add a framework, add a data file (matrix_data/frameworks/NAME.toml) that names a probe, and the
probe NAME.py. If there is no such probe, the framework is only imported (module.py).
"""
