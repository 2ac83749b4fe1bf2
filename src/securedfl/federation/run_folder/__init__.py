"""A run on disk: one module per file that turns it into typed values and back, and a reader of it all. No torch.

===========================  =====================  ===================================================
file                         module                 content
===========================  =====================  ===================================================
config.toml                  `files`                the resolved settings
design.json                  `securedfl.designs`    who meets whom
metrics.jsonl, metrics.csv   `metrics`              one row per method and round
summary.json                 `summary`              the result
data.json                    `summary`              what peers hold, and the size of the model
coding.json                  `Coding`               of a folder of tables or images: what classes and features mean
live.json                    `live`                 what a running process says once a second
checkpoints/                 `checkpoint`           where each method stands, as safetensors
model.safetensors,           `model`                the trained model by name: of the main method, and of others
model-METHOD.safetensors
correct/                     `correctness`          which test samples each model gets right
README.md                    `card`                 the model card
updates/                     `checkpoint`           all peers' parameters before averaging, if asked for
tensorboard/, wandb/,        `trackers`             what others draw the numbers from, if asked for
mlflow/
certificate.json,            `securedfl.privacy`    what a coalition can learn, and what it has seen
ledger.json, exposure.svg
report.html                  `securedfl.reporting`  the result, for people
===========================  =====================  ===================================================

`folder` makes, opens and fills a run folder; `reader` reads one that is finished or not.
"""
