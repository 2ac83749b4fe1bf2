"""Federated averaging inside other frameworks' training loops, three lines each (docs/guides/frameworks.md).

One module per framework, which imports the framework, so that nothing is imported that the user has not installed:
`transformers`, `lightning`, `accelerate`, `torch_averager`, `flower`, and `peft` for LoRA. `loop` is what they share.
"""
