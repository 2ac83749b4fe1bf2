"""Run the notebooks and store what they print and draw: `make notebooks`, after a change of them."""

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parent / "notebooks"


def main() -> None:
    """Run all notebooks, or those that are named."""
    for path in [Path(name) for name in sys.argv[1:]] or sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        NotebookClient(
            notebook, timeout=120, coalesce_streams=True, resources={"metadata": {"path": str(path.parent)}}
        ).execute()
        for cell in notebook.cells:
            # times and counts would differ in every run
            cell.metadata.pop("execution", None)
            if cell.cell_type == "code":
                cell.execution_count = None
                for output in cell.outputs:
                    output.pop("execution_count", None)
        notebook.metadata["language_info"] = {"name": "python"}
        nbformat.write(notebook, path)


if __name__ == "__main__":
    main()
