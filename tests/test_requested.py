"""The frameworks that a request names, and requests that ask for versions of them."""

from gpuenv.compat import data
from gpuenv.model import Host, Python, Request
from gpuenv.requirements.target import TargetEnvironment
from gpuenv.resolve.requested import read_request
from tables import each

DATA = data.load()
HOST = Host(glibc=(2, 28), python=Python(version=(3, 12), full_version="3.12.4"))


def ways(*texts, frameworks=()):
    """What each text of a request leaves of its framework, and its other requirements."""
    request = Request(frameworks=frameworks, requirements=texts)
    rows, others = read_request(request, DATA, TargetEnvironment(HOST))
    found = [
        f"{framework.name}: {', '.join(' '.join(way.requires) for way in framework.ways)}"
        for framework, _ in rows
    ]
    return found + [f"other: {requirement}" for requirement in others]


EXTRAS = ("cuda13", "cuda12", "cuda12_pip", "cuda11_pip", "cuda11_cudnn86", "cuda11_cudnn82")
JAX_WAYS = [*(f"jax[{extra}]" for extra in EXTRAS), "jax"]


@each(
    "texts expected",
    [
        (["jax"], [f"jax: {', '.join(JAX_WAYS)}"]),
        (["jax[cuda12]"], ["jax: jax[cuda12]"]),
        (["jax[cuda12-local]"], ["jax: jax[cuda12-local]"]),
        (["jax[cuda12,cuda12-local]"], ["jax: jax[cuda12]"]),
        (["jax[cpu]"], ["jax: jax"]),
        (["jax[cuda12,cuda13]"], ["jax: jax[cuda13], jax[cuda12]"]),
        (["jax[cuda12,k8s]"], ["jax: jax[cuda12] jax[k8s]"]),
        (["jax[cuda12_pip]"], ["jax: jax[cuda12-pip], jax[cuda12_pip]"]),
        (["jax[k8s,x]"], [f"jax: {', '.join(f'{way} jax[k8s,x]' for way in JAX_WAYS)}"]),
        (["jax[cuda12]", "jax<1", "jax[k8s]"], ["jax: jax[cuda12] jax[k8s]"] * 3),
        (["jax", "jax[cuda12-local]"], ["jax: jax[cuda12-local]"] * 2),
        (["jax[cuda12-local]", "jax[cuda12]"], ["jax: jax[cuda12-local]"] * 2),
        (["jax[cuda12]; sys_platform == 'win32'", "app"], ["other: app"]),
        (["jax[cuda12]; sys_platform == 'linux'"], ["jax: jax[cuda12]"]),
        (["jax @ https://files.test/jax.whl"], ["other: jax @ https://files.test/jax.whl"]),
        (["cupy-cuda12x"], ["cupy: cupy-cuda12x[ctk]"]),
        (["onnxruntime"], ["onnxruntime: onnxruntime-gpu[cuda,cudnn], onnxruntime"]),
        (["onnxruntime-gpu"], ["onnxruntime: onnxruntime-gpu[cuda,cudnn]"]),
        (["onnxruntime-gpu[cuda]"], ["onnxruntime: onnxruntime-gpu[cuda,cudnn]"]),
        (["tensorflow[and-cuda]"], ["tensorflow: tensorflow[and-cuda]"]),
        (["tensorflow-cpu"], ["tensorflow: tensorflow-cpu"]),
        (["torch[opt-einsum]"], ["torch: torch"]),
    ],
)
def test_the_ways_that_texts_leave(texts, expected):
    assert ways(*texts) == expected
