"""R10: what the files of a release import, and later releases of other packages do not have."""

from pathlib import Path

from gpuenv.compat.data import load
from gpuenv.requirements.versions import version_key
from processes import words_of
from tables import each, read_data

HOST = "--gpu none --python 3.12 --platform linux-x86_64 --glibc 2.28"
IMPORTS = "from scipy.integrate import simps"
USES = "import scipy.integrate\ndef area(y):\n    return scipy.integrate.simps(y)"
GUARDED = f"try:\n    {IMPORTS}\nexcept ImportError:\n    simps = None"
WHY = "old.inner imports scipy.integrate.simps"
CASES = [
    # what old/inner.py has, when old was uploaded, the request, what is chosen or printed
    (IMPORTS, "2022", "old", "scipy 1.13.1"),
    (IMPORTS, "2025", "old", "scipy 1.13.1"),  # named, so that it is read at any age
    (IMPORTS, "2022", "app", "scipy 1.13.1"),
    (IMPORTS, "2025", "app", "scipy 1.14.0"),
    (GUARDED, "2022", "old", "scipy 1.14.0"),
    (USES, "2022", "old", "scipy 1.13.1"),
    (USES, "2022", "app", "scipy 1.14.0"),
    (USES, "2022", "old scipy>=1.14", "scipy 1.14.0"),
    (USES, "2022", "old scipy>=1.14", "warning: old 1.0 beside scipy 1.14.0: known bad"),
    (IMPORTS, "2022", "old scipy>=1.14", f"old 1.0 needs scipy<1.14 ({WHY})"),
    ("import pkg_resources", "2022", "old", "setuptools 81.0.0"),
    ("import distutils.util", "2022", "old", "setuptools 82.0.1"),
    ("import imp", "2022", "old", "need Python <3.12 (old.inner imports imp)"),
]


@each("content uploaded request_ expected", CASES)
def test_a_release_gets_what_its_files_import(
    server, call, tmp_path, monkeypatch, content, uploaded, request_, expected
):
    monkeypatch.chdir(tmp_path)
    files = {"old/__init__.py": "from . import inner", "old/inner.py": content}
    for version in ("0.9", "1.0"):
        time = f"{uploaded}-05-01T00:00:00Z"
        server.add("old", version, ["scipy"], files=files, upload_time=time)
    server.add("app", "1.0", ["old"])
    for name, versions in {"scipy": "1.13.1 1.14.0", "setuptools": "81.0.0 82.0.1"}.items():
        for version in versions.split():
            server.add(name, version)
    words = [*words_of(f"solve {HOST} --index-url"), server.url, *words_of(request_)]
    done = call("", *words, "-o", "pylock.toml", status=None)
    lock = read_data(Path("pylock.toml")) if Path("pylock.toml").exists() else {"packages": []}
    chosen = "\n".join(f"{row['name']} {row['version']}" for row in lock["packages"])
    assert expected in f"{chosen}\n{' '.join((done.stdout + done.stderr).split())}"


REMOVED = [
    # as the release notes of the packages say
    ("numpy.float", "numpy", "1.24"),
    ("numpy.in1d", "numpy", "2.4"),
    ("scipy.integrate.simps", "scipy", "1.14"),
    ("scipy.signal.hann", "scipy", "1.13"),
    ("sklearn.externals.joblib", "scikit-learn", "0.23"),
    ("networkx.from_numpy_matrix", "networkx", "3.0"),
    ("pandas.Int64Index", "pandas", "2.0"),
    ("torch._six", "torch", "2.0"),
    ("jax.config.", "jax", "0.4.29"),
    ("pytorch_lightning.loggers.LightningLoggerBase", "pytorch-lightning", "1.9"),
    ("markupsafe.soft_unicode", "markupsafe", "2.1"),
    ("pkg_resources", "setuptools", "82.0"),
    ("imp", "python", "3.12"),
]
STILL_THERE = ["numpy.bool", "numpy.core", "jax.config", "scipy.special.sph_harm_y", "torch.nn"]


def test_the_data_says_what_release_notes_say():
    data = load()
    found = [(name, data.removed_names[name]) for name, _, _ in REMOVED]
    assert [(name, owner, removal.since) for name, (owner, removal) in found] == REMOVED
    assert data.removed_names.keys().isdisjoint(STILL_THERE)
    for removals in data.removals.values():
        assert [one.since for one in removals] == sorted(
            (one.since for one in removals), key=version_key
        )
