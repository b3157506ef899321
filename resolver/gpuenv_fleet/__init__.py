"""The same pipeline over many hosts: `gpuenv fleet`.

command      the flags, and what each command does
documents    what the nodes answered, read from files or from a stream
launchers    lists of nodes, and the command lines of srun, clush, pdsh, kubectl and mpirun
collect      run one process on each node, and read the answers as they come
dask_cluster the same on the workers of a Dask cluster
classes      hosts that need the same of a lock, and what all JSON documents have
solve        the fewest locks, what more locks and a newer driver would give, and profiles
verify       failures, nodes that differ from their class, and changes
text         the text of the JSON documents
"""
