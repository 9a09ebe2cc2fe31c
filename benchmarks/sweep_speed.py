"""How many configurations a second a sweep bounds, against one-by-one evaluation in the same run.

    python benchmarks/sweep_speed.py [MODEL NODES]

Prints CPU seconds of one core, so that other work on the machine does not change the figure. Published peers: Calculon 70, SimuMax 14
configurations a second.
"""

from __future__ import annotations

import random
import sys
import time

from primus_mcp.evaluation.evaluators import FullEvaluator, Rules
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.model_workload import workload_from_model
from primus_mcp.search.sweep import Sweep
from primus_mcp.space.adapted import adapt_baseline

SCALAR = 400


def main(model: str = "mixtral_8x22B_v0.1", nodes: int = 4) -> None:
    """One sweep, then random legal configurations through the evaluator."""
    cluster = make_cluster("mi355x", num_nodes=nodes)
    workload = adapt_baseline(workload_from_model(model), cluster).workload
    axes = {"overlap_grad_reduce": False, "gbs": False}
    price = FullEvaluator(Rules(workload=workload, cluster=cluster, axes=axes, pins={}))
    swept = Sweep(price)
    result = swept.run()
    rng = random.Random(0)
    masks, walk = swept.masks, swept.walker.walk()
    trials = []
    for topology in rng.sample(masks.topologies(), 20):
        for lot, _ in walk.unit([topology]):
            i = rng.randrange(len(lot.lever))
            trials.append(walk.trial(lot.block.knobs(int(lot.batch[i])), int(lot.lever[i]), int(lot.choice[i])))
    rng.shuffle(trials)
    start = time.process_time()
    for trial in trials[:SCALAR]:
        verdict = price.rules.check(trial)
        assert verdict.config is not None
        price.price(trial, verdict.config, even_if_over=True)
    scalar = len(trials[:SCALAR]) / (time.process_time() - start)
    rate = result.counts.legal / result.cpu_s
    print(f"{model} on {nodes} x 8: {result.counts.legal:,} legal of {result.counts.size:,}, proven {result.proven}")
    print(f"sweep  {result.cpu_s:6.1f} CPU s, {result.wall_s:6.1f} s of wall: {rate:12,.0f} configurations a CPU second")
    print(f"scalar {SCALAR} random configurations, cold:      {scalar:12,.0f} configurations a CPU second")
    print(f"ratio  {rate / scalar:,.0f}")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        main(sys.argv[1], int(sys.argv[2]))
    else:
        main()
