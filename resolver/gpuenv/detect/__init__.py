"""Find out what a host is: its GPUs, driver, platform and interpreter.

host         detect this host; the codes of the problems; hosts as JSON files
nvml         the devices and the driver, as NVML reports them
fallback     the same facts where NVML is missing or fails
visible      the devices that CUDA_VISIBLE_DEVICES leaves visible
system       the platform, and the traces of a driver in the file system
described    a host described by the texts of the host flags
"""
