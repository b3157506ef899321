"""The solver for wheels. Its resolver implements the interfaces of resolvelib.

- solver: solve() and the request as requirements
- requested: the frameworks and the other requirements that a request names
- graph: the nodes of the resolution graph, their requirements and candidates
- candidates: the candidate store: lists and orders releases, and says which may be taken
- wheel_variants: the variant wheels of a release: which suit a host, and in which order
- release_facts: what a release requires: of the host, of other builds, and its packages
- import_limits: what a release requires because of the names that its files import
- widening: asks the live index for releases that the snapshot leaves out
- provider: the resolvelib provider
- resolution: the resolver, which learns from conflicts
- plan: the plan of a solution
- solution: what was chosen, and why better releases were not
- owners: distributions that install the same paths
- explain: which parts of an impossible request conflict, and why
- missing_releases: why no file of a package is a candidate
- suggestions: the smallest changes that make a request possible
- conda: the solver for conda environments
"""
