"""Writes a job for NVFlare, in its own environment: ``job.py swarm|fedavg FOLDER SITES ROUNDS [CHECKPOINT DONE]``.

A job that goes on begins after so many rounds with the model of a checkpoint.
"""

from __future__ import annotations

import sys
from pathlib import Path

from nvflare.apis.dxo import DataKind
from nvflare.app_common.aggregators.intime_accumulate_model_aggregator import InTimeAccumulateWeightedAggregator
from nvflare.app_common.shareablegenerators.full_model_shareable_generator import FullModelShareableGenerator
from nvflare.app_common.workflows.global_model_eval import GlobalModelEval
from nvflare.app_common.workflows.scatter_and_gather import ScatterAndGather
from nvflare.app_opt.pt.file_model_locator import PTFileModelLocator
from nvflare.app_opt.pt.file_model_persistor import PTFileModelPersistor
from nvflare.app_opt.pt.recipes.swarm import SwarmLearningRecipe
from nvflare.job_config.api import FedJob
from nvflare.job_config.script_runner import ScriptRunner

from training import SIZE

SCRIPT = str(Path(__file__).parent / "site.py")
MODEL = {"class_path": "torch.nn.Linear", "args": {"in_features": SIZE, "out_features": 1, "bias": False}}
PATIENCE, AFTER_ENOUGH = 30, 10


def swarm(folder: str, sites: int, rounds: int, checkpoint: str | None, done: int) -> None:
    recipe = SwarmLearningRecipe(
        name="consortium",
        model=MODEL,
        num_rounds=rounds - done,
        # a path that is relative makes the file part of the job
        initial_ckpt=checkpoint and Path(checkpoint).name,
        server_config_overrides={"start_round": done},
        train_script=SCRIPT,
        min_clients=(sites + 1) // 2,
        key_metric=None,
        learn_task_timeout=PATIENCE,
        round_timeout=PATIENCE,
        max_status_report_interval=3 * PATIENCE,
        progress_timeout=2 * PATIENCE,
        client_config_overrides={
            "wait_time_after_min_resps_received": AFTER_ENOUGH,
            "request_to_submit_result_max_wait": PATIENCE,
        },
    )
    recipe.export(folder)


def fedavg(folder: str, sites: int, rounds: int, checkpoint: str | None, done: int) -> None:
    enough = (sites + 1) // 2
    job = FedJob(name="consortium", min_clients=enough)
    model = {"path": MODEL["class_path"], "args": MODEL["args"]}
    job.to_server(PTFileModelPersistor(model=model, source_ckpt_file_full_name=checkpoint), id="persistor")
    job.to_server(InTimeAccumulateWeightedAggregator(expected_data_kind=DataKind.WEIGHTS), id="aggregator")
    job.to_server(FullModelShareableGenerator(), id="shareable_generator")
    job.to_server(
        ScatterAndGather(
            min_clients=enough,
            num_rounds=rounds - done,
            start_round=done,
            wait_time_after_min_received=AFTER_ENOUGH,
            train_timeout=PATIENCE,
            persistor_id="persistor",
        )
    )
    # sites get the last model to evaluate it
    job.to_server(PTFileModelLocator(pt_persistor_id="persistor"), id="locator")
    waits = {"validation_timeout": PATIENCE, "wait_for_clients_timeout": PATIENCE}
    job.to_server(GlobalModelEval(model_locator_id="locator", **waits))
    job.to_clients(ScriptRunner(script=SCRIPT))
    job.export_job(folder)


if __name__ == "__main__":
    given = [*sys.argv[5:], None, 0][:2]
    jobs = {"swarm": swarm, "fedavg": fedavg}
    jobs[sys.argv[1]](sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), given[0], int(given[1]))
