"""pfl-research: its simulated backend sums the statistics of all users of a round in one process; no network.

An average is one central iteration in which every user returns its vector.
"""

from __future__ import annotations

import numpy as np
from common import Watch, arguments, largest_error, tell, vector, versions


def main() -> None:
    args = arguments(__doc__)
    from pfl.internal.ops import numpy_ops
    from pfl.internal.ops.selector import set_framework_module

    set_framework_module(numpy_ops)
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByUser
    from pfl.algorithm.base import FederatedAlgorithm
    from pfl.common_types import Population
    from pfl.context import CentralContext
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam.base import AlgorithmHyperParams, ModelHyperParams
    from pfl.metrics import Metrics
    from pfl.stats import MappedVectorStatistics

    class Bring(FederatedAlgorithm):
        def get_next_central_contexts(self, model, iteration_num, algorithm_params, *rest, **more):
            raise NotImplementedError

        def simulate_one_user(self, model, user_dataset, central_context):
            return MappedVectorStatistics({"w": vector(int(user_dataset.user_id), args.size)}, weight=1), Metrics()

        def process_aggregated_statistics(self, central_context, aggregate_metrics, model, statistics):
            return model, Metrics()

    users = list(range(args.peers))
    data = FederatedDataset(
        lambda user: Dataset(raw_data=[np.zeros(1)], user_id=str(user)), get_user_sampler("minimize_reuse", users)
    )
    backend = SimulatedBackend(training_data=data, val_data=None, postprocessors=[WeightByUser()])
    algorithm = Bring()

    def average(number: int) -> np.ndarray:
        context = CentralContext(
            current_central_iteration=number,
            do_evaluation=False,
            cohort_size=args.peers,
            population=Population.TRAIN,
            model_train_params=ModelHyperParams(),
            model_eval_params=None,
            algorithm_params=AlgorithmHyperParams(),
            seed=number,
        )
        statistics, _ = backend.gather_results(model=None, training_algorithm=algorithm, central_context=context)
        return np.asarray(statistics["w"]) / statistics.weight

    average(0)
    watch = Watch()
    watch.begin()
    for number in range(args.repeat):
        with watch.average():
            mean = average(number + 1)
    result = watch.result(args, largest_error=largest_error(mean, args.peers))
    tell({**result, "bytes_per_peer": 0, "versions": versions("pfl", "numpy")})


if __name__ == "__main__":
    main()
