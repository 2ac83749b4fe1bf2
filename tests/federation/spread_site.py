"""One process of a site of two, started by torchrun: averages a replicated model, then a sharded one."""

import json
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import securedfl


def model_of(value: float) -> torch.nn.Module:
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 1, bias=False))
    model[1].weight.requires_grad_(False)
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, value)
    return model


def add_one(model: torch.nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 1.0


def numbers(model: torch.nn.Module) -> list[float]:
    state = model.state_dict()
    whole = [value.full_tensor() if hasattr(value, "full_tensor") else value for value in state.values()]
    return sorted({round(float(x), 4) for value in whole for x in value.reshape(-1)})


def main(path: str, out: str) -> None:
    dist.init_process_group("gloo")
    rank, said = dist.get_rank(), {}
    copied = DistributedDataParallel(model_of(10.0))
    sharded = fully_shard(model_of(0.0))
    with securedfl.join(path if rank == 0 else "/nowhere/peer.toml") as peer:
        said["first"] = [peer.resume_(copied), peer.weighted]
        peer.average_(copied, weight=4.0)
        said["copied"] = numbers(copied)
        said["resumed"] = [peer.resume_(sharded), peer.round]
        add_one(sharded)
        for name, given, weight in (
            ("failed", [sharded, torch.nn.Linear(3, 5)][rank], 4.0),
            ("weights", sharded, 4.0 + rank),
        ):
            try:
                peer.average_(given, weight=weight)
            except securedfl.SecuredFLError as error:
                said[name] = f"{type(error).__name__}: {error}"
        peer.average_(sharded, weight=4.0)
        said["sharded"] = numbers(sharded)
        said["done"] = [peer.done, peer.round]
        try:
            peer.average_(sharded, weight=4.0)
        except securedfl.SecuredFLError as error:
            said["late"] = type(error).__name__
    with open(f"{out}.{rank}", "w") as file:
        json.dump(said, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
