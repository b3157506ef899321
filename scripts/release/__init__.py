"""The programs that make a release.

Change the version in resolver/gpuenv/version.py, CITATION.cff and scripts/recipes/recipe.yaml and
the heading in CHANGELOG.md, and push the tag vX.Y.Z: the workflow release.yml runs these programs,
signs and publishes the files as a trusted publisher of the index, and makes the release on GitHub.
The programs need `pip install '.[release]'`. With `pip install '.[workflows]'`, actionlint and
zizmor check the workflows.
"""
