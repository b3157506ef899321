"""Verify an environment.

Its files, its libraries, its cuDNN, and a convolution of each framework on every device.

environment    the entry: starts the probes and collects their checks
runner         runs a probe in a child process of the target's interpreter
survey         reads what is installed
installed      checks of the interpreter, the versions, the dependencies, the files, their owners
linkage        checks that every library that is needed is in the environment, by reading the files
loader         checks of where libraries come from, and of cuDNN's libraries
devices        checks of each device by the probe "convolution"
frameworks     checks of each framework by its probe
companions     imports what is beside the frameworks, and runs checks of other packages
rule_checks    the compatibility rules, CPU builds and device code, for what is installed
cudnn_log      the reasons in cuDNN's own log
probe_tests    the tests of `gpuenv doctor --probe`
"""
