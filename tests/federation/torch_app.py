"""An app as a user writes it: a module with a model, data, an update and a score, in torch."""

from securedfl.federation.config import TrainConfig

SOURCE = """
import torch
from torch.utils.data import DataLoader, TensorDataset
import securedfl

def make(settings):
    layers = torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.2), torch.nn.Linear(3, 2)
    model = torch.nn.Sequential(*layers)
    random = torch.Generator().manual_seed(settings["number"])
    x = torch.randn(40 + 2 * settings["number"], 4, generator=random)
    y = (x[:, 0] > 0).long()
    optimizer = torch.optim.SGD(model.parameters(), lr=settings["learning_rate"], momentum=0.9)

    def update(model, data, round):
        if settings.get("repeat"):
            torch.manual_seed(100 * settings["number"] + round)
        model.train()
        for inputs, labels in data:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
        return loss.item()

    update.state_dict, update.load_state_dict = optimizer.state_dict, optimizer.load_state_dict

    def evaluate(model, data):
        model.eval()
        with torch.inference_mode():
            scores = model(x)
        return (scores.argmax(1) == y).sum(), torch.nn.functional.cross_entropy(scores, y, reduction="sum"), len(y)

    data = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
    return securedfl.App(model=model, data=data, update=update, evaluate=evaluate)
"""


def config(**settings):
    return TrainConfig.resolve({"entry": "my_app:make", "peers": 3, "learning_rate": 0.01, **settings})
