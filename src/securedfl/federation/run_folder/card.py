"""README.md of a run folder: the model card, with front matter that hubs read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from securedfl.federation.run_folder.files import CODING, RESUME
from securedfl.federation.run_folder.metrics import Row
from securedfl.federation.run_folder.model import MODEL
from securedfl.federation.run_folder.summary import MethodSummary, Summary
from securedfl.privacy.budget.words import PrivacyPromise
from securedfl.privacy.run_certificate import RunCertificate
from securedfl.storage import write_text

CARD = "README.md"

OWN = (
    "Own: each peer's model on that peer's own test data. Where peers have different labels, a model that knows few of "
    "them can do well here."
)
ALL = "All: each peer's model on the test data of all peers together, which is what counts if it meets data of others."


def write_card(
    folder: Path, summary: Summary, rows: Sequence[Row], certificates: Iterable[RunCertificate], main: str
) -> None:
    """Write the card of a run whose model is that of the method ``main``."""
    certificate = next((one for one in certificates if one.method == main), None)
    mine = [row for row in rows if row.method == main]
    text = card(summary, mine, certificate, main, coded=(folder / CODING).exists())
    write_text(folder / CARD, text, RESUME)


MOST_LISTED = 100
"""Peers up to which each has a line."""


def quartiles(values: Iterable[float]) -> list[float]:
    """Return the least, the quartiles and the most of what is known."""
    known = [value for value in values if math.isfinite(value)]
    return [float(value) for value in np.quantile(known, (0, 0.25, 0.5, 0.75, 1))] if known else []


def card(
    summary: Summary, rows: Sequence[Row], certificate: RunCertificate | None, main: str, *, coded: bool = False
) -> str:
    """Return the card as text; the same run gives the same text. ``coded``: the folder has a coding."""
    method = summary.methods[main]
    config, last = summary.config, rows[-1] if rows else None
    trained = config.get("entry") or f"{config.get('model', 'a model')} on {summary.dataset}"
    parts = [
        _front(summary, method),
        f"# {trained}, trained by {summary.peers} peers\n",
        f"{method.label or main} over {method.rounds or 0} of {summary.rounds} rounds. Federated learning without a "
        "server: the peers averaged what they trained, and their data stayed with them.\n",
        "## Data\n",
        f"{summary.samples.train:,} samples for training and {summary.samples.test:,} for testing, at {summary.peers} "
        f"peers (dealing: {config.get('dealing', 'as each peer has it')}). No sample is in this folder.\n",
        "## Accuracy\n",
        *_accuracy(method, last, personal=bool(config.get("local"))),
        "## Privacy\n",
        f"{certificate.sentence if certificate else 'No certificate: the method promises no privacy.'}\n",
        *([f"{certificate.remark}\n"] if certificate and certificate.remark else []),
        _budget(method, None if certificate is None else certificate.promise),
        f"Design: `{summary.design.hash if summary.design else 'none'}`. More: certificate.json and ledger.json.\n",
        "## Use\n",
        "```python",
        "import securedfl",
        "",
        'model = securedfl.load("this folder")',
        *(['x = securedfl.read_features("new.csv", "this folder/coding.json")  # of tables'] if coded else []),
        "```\n",
        f"{MODEL} has the parameters by name. Made with {_versions(summary.versions)}; config.toml has all settings.",
    ]
    return "\n".join(parts) + "\n"


def _front(summary: Summary, method: MethodSummary) -> str:
    """Return the front matter: YAML, whose texts are quoted as JSON quotes them."""
    accuracy = [] if method.final_accuracy is None else [f"accuracy: {method.final_accuracy:.6g}"]
    lines = [
        "library_name: securedfl",
        "tags: [federated-learning, securedfl]",
        f"datasets: [{json.dumps(summary.dataset)}]",
        "metrics: [accuracy]",
        f"peers: {summary.peers}",
        f"rounds: {method.rounds or 0}",
        f"training_samples: {summary.samples.train}",
        f"design: {json.dumps(summary.design.hash if summary.design else '')}",
        *accuracy,
        *([] if method.epsilon is None else [f"epsilon: {method.epsilon:.6g}"]),
    ]
    return "\n".join(["---", *lines, "---", ""])


def _accuracy(method: MethodSummary, last: Row | None, *, personal: bool) -> list[str]:
    """Return the accuracy over all peers, and a table of peers with one sentence for each view."""
    if last is None or (method.final_accuracy is None and last.common_accuracy is None):
        return ["No round was scored.\n"]
    told = []
    if last.common_accuracy is not None:
        told.append(f"{_percent(last.common_accuracy)} on test data that no peer holds, after round {last.round}.\n")
    if method.final_accuracy is None:
        return told
    told.append(f"{_percent(last.accuracy)} over all peers' own test data after round {last.round}.\n")
    common = last.all_accuracy
    if common is not None:
        told.append(f"{OWN} {ALL}\n")
    elif personal:
        told.append(f"{OWN} Parts of the model are personal; how it does on data of others was not measured.\n")
    else:
        told.append(f"{OWN} All peers hold the same model, so it has that accuracy on all test data, too.\n")
    if len(last.peer_accuracy) > MOST_LISTED:
        spread = ", ".join(_percent(value) for value in quartiles(last.peer_accuracy))
        return [*told, f"Of {len(last.peer_accuracy)} peers: {spread} (least, quartiles, most).\n"]
    rows = ["| peer | own |" if common is None else "| peer | own | all |"]
    rows.append("|---|---|" if common is None else "|---|---|---|")
    for peer, own in enumerate(last.peer_accuracy):
        rows.append(f"| {peer} | {_percent(own)} |" + ("" if common is None else f" {_percent(common[peer])} |"))
    return [*told, *rows, ""]


def _budget(method: MethodSummary, promise: PrivacyPromise | None) -> str:
    """Return what differential privacy promises, if the run has a budget."""
    if method.epsilon is None:
        return "The run has no differential privacy: what averages tell is not bounded.\n"
    delta = "" if promise is None else f", delta {promise.delta:g}"
    return f"Differential privacy: epsilon {method.epsilon:.4g}{delta}.\n"


def _versions(found: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in found.items())


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %" if math.isfinite(value) else "-"
