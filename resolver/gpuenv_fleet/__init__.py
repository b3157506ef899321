"""The same pipeline over many hosts: `gpuenv fleet`.

command      the flags, and what each command does
documents    what the nodes answered, read from files or from a stream
launchers    lists of nodes, and the command lines of srun, clush, pdsh, kubectl and mpirun
collect      run one process on each node, and read the answers as they come
dask_cluster the same on the workers of a Dask cluster
classes      hosts that need the same of a lock
cover        the fewest groups of items
solve        the fewest locks, the cost of merges, what a newer driver would change, and profiles
verify       failures, nodes that differ from their class, and changes
report, text the JSON documents, and their text
"""
