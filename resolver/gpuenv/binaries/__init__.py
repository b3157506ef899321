"""What do the files of libraries and wheels say? Nothing is loaded or run.

elf            the libraries that a shared library needs, and its sections
device_code    the device code of one file: a shared library, a cubin, a fat binary, PTX
environment    the device code of every file in an environment, with the owners
wheel          the device code of the files in a wheel
imports        the names of other packages that a package needs to be imported
rows           a row of the compatibility data from a wheel
served         which files cannot run on the devices of a host
"""
