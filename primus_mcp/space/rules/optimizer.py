"""Rules on gradient buffers, optimizer states and the checkpoint format that goes with them."""

from __future__ import annotations

from primus_mcp.space.rules.base import Case, RuleBook, megatron, primus

book = RuleBook()


@book.hard("O2", megatron("training/arguments.py:854"), "gathering weights in the optimizer step: dist-opt, overlapped gather, VPP > 1")
def _gather_in_step(case: Case) -> str | None:
    c, a = case.config, case.arguments
    if not a.get("overlap_param_gather_with_optimizer_step"):
        return None
    wrong = [key for key in ("use_distributed_optimizer", "overlap_param_gather") if not getattr(c, key)]
    wrong = [f"{key} true" for key in wrong] + (["VPP > 1"] if c.vpp == 1 else [])
    wrong += ["ckpt_format torch"] if a.get("ckpt_format") not in (None, "torch") else []
    named = f"VPP {c.vpp}, ckpt_format {a.get('ckpt_format')}"
    return f"overlap_param_gather_with_optimizer_step at {named} needs {', '.join(wrong)}" if wrong else None


@book.hard("O6", megatron("training/arguments.py:1279"), "checkpoints in torch_dcp need FSDP2, TP 1 and PP 1")
def _torch_dcp(case: Case) -> str | None:
    c = case.config
    if case.arguments.get("ckpt_format") == "torch_dcp" and not (c.use_torch_fsdp2 and c.tp == 1 and c.pp == 1):
        fsdp2 = str(c.use_torch_fsdp2).lower()
        return f"ckpt_format torch_dcp needs use_torch_fsdp2 true, TP 1 and PP 1, they are {fsdp2}, {c.tp} and {c.pp}; use torch_dist"
    return None


@book.hard("O8", primus("backends/megatron/patches/args/rocm_arg_validation.py:83"), "FSDP2 has one optimizer of its own")
def _one_optimizer(case: Case) -> str | None:
    keys = ("use_fsdp2_fp32_param_optimizer", "use_fsdp2_bf16_master_weight_optimizer")
    if all(case.arguments.get(key) for key in keys):
        return f"{' and '.join(keys)} are both true, 1 of the 2 is allowed"
    return None


@book.hard("O12", megatron("training/arguments.py:949"), "gradients summed in fp32 are kept in fp32")
def _summed(case: Case) -> str | None:
    a = case.arguments
    kept = a.get("main_grads_dtype")
    if a.get("accumulate_allreduce_grads_in_fp32") and kept not in (None, "fp32"):
        return f"accumulate_allreduce_grads_in_fp32 at DP {case.dp} needs main_grads_dtype fp32, it is {kept}"
    return None


@book.hard("O15", megatron("training/training.py:1344"), "gradient buckets: a number or a size; no averaging with loss by token")
def _buckets(case: Case) -> str | None:
    a = case.arguments
    number, size = a.get("ddp_num_buckets"), a.get("ddp_bucket_size")
    if number is not None and number <= 0:
        return f"ddp_num_buckets {number} is no positive number; write at least 1, or null"
    if number is not None and size is not None:
        return f"ddp_num_buckets {number} and ddp_bucket_size {size} exclude each other, 1 is allowed"
    if a.get("calculate_per_token_loss") and a.get("ddp_average_in_collective"):
        return f"calculate_per_token_loss at DP {case.dp} needs ddp_average_in_collective false, it is true"
    return None


@book.hard("G11", megatron("training/arguments.py:1084"), "a cross entropy in fp16 needs fp16 training")
def _half_loss(case: Case) -> str | None:
    if case.arguments.get("fp16_lm_cross_entropy") and not case.arguments.get("fp16"):
        return f"fp16_lm_cross_entropy (vocabulary {case.arch.vocab_size}) needs fp16 training, this is bf16"
    return None
