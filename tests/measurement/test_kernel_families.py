"""Which kernels a rank measures with: the target's where they can be imported, else the first of the order; and what each is asked for.

Primus-Turbo and Transformer Engine are stand-ins with the signatures of their public sources; Megatron-Core is itself where installed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
torch = pytest.importorskip("torch")

from primus_mcp.measurement.job import Family, Kernels, Unit  # noqa: E402
from primus_mcp.measurement.worker import kernels, megatron  # noqa: E402
from primus_mcp.measurement.worker.device import Device  # noqa: E402
from primus_mcp.measurement.worker.units import build  # noqa: E402

HAS_MEGATRON = find_spec("megatron") is not None
SIZES = {"mbs": 2, "seq": 16, "heads": 4, "groups": 2, "qk_dim": 8, "v_dim": 8, "window": 0}
BLOCK = {"tokens": 32, "norm_tokens": 32, "hidden": 32, "q_rank": 0, "kv_rank": 0, "rope_dim": 0, "rope": 1, "qk_norm": 1, "gate": 0}
LATENT = {**SIZES, **BLOCK, "groups": 4, "qk_dim": 12, "kv_rank": 16, "rope_dim": 4, "q_rank": 8, "qk_norm": 0}
EXPERTS = {"routed": 4, "top_k": 2, "experts": 2, "rows": 64, "width": 16, "shared_tokens": 32, "shared_width": 16, "gated": 1}
UNITS = (
    Unit(kind="attention", sizes={**SIZES, **BLOCK}),
    Unit(kind="attention", sizes=LATENT),
    Unit(kind="attention_core", sizes=SIZES),
    Unit(kind="attention_core", sizes={**SIZES, "window": 4}),
    Unit(kind="dense_mlp", sizes={"tokens": 32, "hidden": 32, "width": 16, "gated": 1}),
    Unit(kind="moe", sizes={"tokens": 32, "hidden": 32, **EXPERTS}),
    Unit(kind="head", sizes={"tokens": 32, "hidden": 32, "vocab": 64}),
)


class OneGpu(Device):
    """A CPU that is told to be a GPU, so that every family may be chosen."""

    def __init__(self) -> None:
        super().__init__("cpu", 0, "fp32")
        self.kind = "gpu"


def sdpa(q: Any, k: Any, v: Any) -> Any:
    out = torch.nn.functional.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=q.shape[2] != k.shape[2]
    )
    return out.transpose(1, 2)


def turbo() -> dict[str, ModuleType]:
    """primus_turbo.pytorch.ops: gemm of matrices only, grouped_gemm, flash_attn_func over [batch, sequence, heads, dim]."""

    def gemm(a: Any, b: Any, trans_a: bool = False, trans_b: bool = False, out_dtype: Any = None) -> Any:
        assert a.ndim == 2 and b.ndim == 2 and not trans_a and out_dtype is None
        return a @ (b.T if trans_b else b)

    def grouped_gemm(a: Any, b: Any, group_lens: Any, group_offs: Any = None, trans_b: bool = False, num_cu: Any = None) -> Any:
        assert group_lens.dtype == torch.int64 and int(group_lens.sum()) == a.shape[0] and not trans_b
        assert group_offs is None and num_cu is None
        return torch.cat([rows @ weight for rows, weight in zip(a.split(group_lens.tolist()), b, strict=True)])

    def flash_attn_func(
        q: Any, k: Any, v: Any, dropout_p: float = 0.0, softmax_scale: Any = None, causal: bool = False, window_size: Any = (-1, -1)
    ) -> Any:
        assert causal and dropout_p == 0.0 and softmax_scale is None and window_size in ((-1, -1), (3, 0))
        assert all(x.ndim == 4 and x.stride(-1) == 1 and x.stride(0) >= x.stride(1) >= x.stride(2) for x in (q, k, v))
        return sdpa(q, k, v)

    ops = ModuleType("primus_turbo.pytorch.ops")
    vars(ops).update(gemm=gemm, grouped_gemm=grouped_gemm, flash_attn_func=flash_attn_func)
    return packages("primus_turbo", "pytorch") | {"primus_turbo.pytorch.ops": ops}


def transformer_engine() -> dict[str, ModuleType]:
    """transformer_engine.pytorch: Linear, GroupedLinear, RMSNorm, DotProductAttention, which joins the heads of its output."""

    class Linear(torch.nn.Linear):  # type: ignore[misc,name-defined]
        def __init__(self, in_features: int, out_features: int, bias: bool = True, *, params_dtype: Any, device: Any) -> None:
            super().__init__(in_features, out_features, bias=bias, dtype=params_dtype, device=device)

    class RMSNorm(torch.nn.RMSNorm):  # type: ignore[misc,name-defined]
        def __init__(self, hidden_size: int, eps: float = 1e-5, *, params_dtype: Any, device: Any) -> None:
            super().__init__(hidden_size, eps=eps, dtype=params_dtype, device=device)

    class GroupedLinear(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, num_gemms: int, in_features: int, out_features: int, bias: bool, *, params_dtype: Any, device: Any) -> None:
            super().__init__()
            each = [torch.nn.Linear(in_features, out_features, bias=bias, dtype=params_dtype, device=device) for _ in range(num_gemms)]
            self.each = torch.nn.ModuleList(each)

        def forward(self, inp: Any, m_splits: list[int]) -> Any:
            return torch.cat([part(rows) for part, rows in zip(self.each, inp.split(m_splits), strict=True)])

    class DotProductAttention(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(
            self,
            num_attention_heads: int,
            kv_channels: Any,
            *,
            num_gqa_groups: int,
            attention_dropout: float,
            attn_mask_type: str,
            qkv_format: str,
            **more: Any,
        ) -> None:
            super().__init__()
            assert (
                attn_mask_type == "causal"
                and qkv_format == "bshd"
                and attention_dropout == 0.0
                and num_attention_heads % num_gqa_groups == 0
            )
            assert set(more) <= {"window_size"} and isinstance(kv_channels, int | tuple)

        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return sdpa(q, k, v).flatten(2)

    whole = packages("transformer_engine", "pytorch")
    vars(whole["transformer_engine.pytorch"]).update(
        Linear=Linear, RMSNorm=RMSNorm, GroupedLinear=GroupedLinear, DotProductAttention=DotProductAttention
    )
    return whole


def packages(*names: str) -> dict[str, ModuleType]:
    """Nested packages, each an attribute of the one above it."""
    found: dict[str, ModuleType] = {}
    for depth in range(1, len(names) + 1):
        made = ModuleType(".".join(names[:depth]))
        made.__path__ = []
        found[made.__name__] = made
        if depth > 1:
            setattr(found[".".join(names[: depth - 1])], names[depth - 1], made)
    return found


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make only the named families importable."""

    def only(*families: str) -> None:
        for name in ("primus_turbo", "transformer_engine", "megatron"):
            for known in [known for known in sys.modules if known.split(".")[0] == name]:
                monkeypatch.delitem(sys.modules, known)
            monkeypatch.setitem(sys.modules, name, None)
        table = {"turbo": turbo(), "te": transformer_engine(), "megatron-core": packages("megatron", "core")}
        for family in families:
            for name, module in table[family].items():
                monkeypatch.setitem(sys.modules, name, module)

    return only


@pytest.mark.parametrize(
    ("there", "wanted", "got"),
    [
        (("turbo", "te", "megatron-core"), "turbo", "turbo"),
        (("turbo", "te", "megatron-core"), "te", "te"),
        (("te", "megatron-core"), "turbo", "te"),
        (("turbo", "megatron-core"), "te", "turbo"),
        (("megatron-core",), "te", "megatron-core"),
        ((), "turbo", "torch"),
        (("turbo", "te"), "torch", "torch"),
    ],
)
def test_the_target_s_kernels_come_first_then_turbo_te_megatron_core_torch(
    installed: Any, there: tuple[str, ...], wanted: Family, got: Family
) -> None:
    installed(*there)
    assert kernels.chosen("linear", wanted, "gpu") == got
    assert kernels.Layers(OneGpu(), {"linear": wanted}).families == {"linear": got}


def test_a_family_that_is_there_but_broken_counts_as_absent(installed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed()
    (tmp_path / "transformer_engine").mkdir()
    (tmp_path / "transformer_engine" / "__init__.py").write_text("raise OSError('libtransformer_engine.so: undefined symbol')")
    monkeypatch.delitem(sys.modules, "transformer_engine")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert kernels.chosen("linear", "te", "gpu") == "torch"


def test_a_cpu_runs_plain_torch_and_what_of_megatron_core_needs_no_gpu(installed: Any) -> None:
    installed("turbo", "te", "megatron-core")
    assert kernels.chosen("linear", "turbo", "cpu") == "megatron-core"
    assert kernels.chosen("attention", "megatron-core", "cpu") == "torch"


@pytest.mark.parametrize("family", ["turbo", "te", "torch"])
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: f"{unit.kind}-{unit.sizes.get('kv_rank', 0)}-{unit.sizes.get('window', 0)}")
def test_every_unit_runs_forward_and_backward_on_the_interface_of_every_family(installed: Any, family: Family, unit: Unit) -> None:
    installed("turbo", "te")
    device = OneGpu()
    wanted: Kernels = {"linear": family, "attention": family, "experts": family}
    layers = kernels.Layers(device, wanted)
    assert layers.families == wanted
    built = build(unit, layers, device)
    built.forward().sum().backward()
    assert all(tensor.grad is not None and bool(tensor.grad.isfinite().all()) for tensor in (*built.inputs, *built.weights))
    assert built.weights or unit.kind == "attention_core"


@pytest.fixture
def alone() -> Iterator[None]:
    """Megatron-Core's groups of one rank, taken down again."""
    yield
    from megatron.core import parallel_state

    parallel_state.destroy_model_parallel()
    megatron._prepare.cache_clear()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@pytest.mark.skipif(not HAS_MEGATRON, reason="megatron-core is not installed")
@pytest.mark.usefixtures("alone")
class TestMegatronCore:
    """The real package, on a CPU."""

    def test_every_unit_runs_and_a_linear_layer_is_a_linear_layer(self) -> None:
        device = Device("cpu", 0, "fp32")
        layers = kernels.Layers(device, dict.fromkeys(("linear", "attention", "experts"), "megatron-core"))
        assert layers.families == {"linear": "megatron-core", "attention": "torch", "experts": "megatron-core"}
        for unit in UNITS:
            built = build(unit, layers, device)
            built.forward().sum().backward()
            assert all(tensor.grad is not None for tensor in (*built.inputs, *built.weights)), unit.kind
        layers.weights.clear()
        call, x = layers.linear(8, 6), torch.randn(5, 8)
        assert torch.allclose(call(x), x @ layers.weights[0].T)

    @pytest.mark.parametrize("sizes", [SIZES, {**SIZES, "window": 4}, {**SIZES, "groups": 4, "qk_dim": 12}])
    def test_its_attention_core_computes_what_torch_s_does(self, sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "current_device", lambda: torch.device("cpu"))
        device = Device("cpu", 0, "fp32")
        q = torch.randn(2, 16, 4, sizes["qk_dim"])
        k, v = torch.randn(2, 16, sizes["groups"], sizes["qk_dim"]), torch.randn(2, 16, sizes["groups"], sizes["v_dim"])
        theirs, ours = megatron.attention(device, sizes)(q, k, v), kernels._torch_attention(sizes, device)(q, k, v)
        assert theirs.shape == ours.shape and torch.allclose(theirs, ours, atol=1e-5)
