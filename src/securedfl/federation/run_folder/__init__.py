"""A run on disk: one module per file that turns it into typed values and back, and a reader of it all. No torch.

===========================  ==================  ===================================================
file                         module              content
===========================  ==================  ===================================================
config.toml                  `files`             the resolved settings
design.json                  `securedfl.designs`  who meets whom
metrics.jsonl, metrics.csv   `metrics`           one row per method and round
summary.json                 `summary`           the result
checkpoints/                 `checkpoint`        where each method stands, as safetensors
model.safetensors            `model`             the trained model by name
README.md                    `card`              the model card
updates/                     `checkpoint`        all peers' parameters before averaging, if asked for
tensorboard/, wandb/,        `trackers`          what others draw the numbers from, if asked for
mlflow/
certificate.json             `certificate`       what a coalition can learn
ledger.json, exposure.svg    `securedfl.privacy`  what it has seen
report.html                  `securedfl.reporting`  the result, for people
===========================  ==================  ===================================================

`folder` makes, opens and fills a run folder; `reader` reads one that is finished or not.
"""
