"""`paddle train --job=test` with `--predict_output_dir` or a printer of generated text: writes what a network answers."""

from __future__ import annotations

import os

from paddlecloud.legacy import log
from paddlecloud.legacy.values import Sparse


def write(machine, samples, folder: str) -> None:
    """Writes one line per row of the outputs to `rank-00000`, and generated sentences to the files of their printers."""
    import paddle

    feeder = machine.feeder(samples.feeding)
    printers = [_Printer(each) for each in machine.printers]
    out = _open(folder, "rank-00000") if folder else None
    count = 0
    try:
        with paddle.no_grad():
            for batch in samples.batches():
                values, _ = machine.forward(feeder(batch), is_training=False)
                count += len(batch)
                if out is not None:
                    out.writelines(_lines([values[id(node)] for node in machine.outputs]))
                for printer in printers:
                    printer.write(values)
    finally:
        for file in [out, *(printer.file for printer in printers)]:
            if file is not None:
                file.close()
    log.line("Tester.cpp:127", f" Test samples={count}")


def _open(folder, name):
    os.makedirs(folder, exist_ok=True)
    return open(os.path.join(folder, name), "w")


def _lines(values):
    """A row of every output, each ended by a semicolon: `1;0.2 0.8;`."""
    columns = [value.data.dense() if isinstance(value.data, Sparse) else value.data.numpy() for value in values]
    for row in zip(*columns):
        yield "".join(" ".join(f"{number:g}" for number in part.reshape(-1).tolist()) + ";" for part in row) + "\n"


class _Printer:
    """`seqtext_printer_evaluator`: generated sentences as words, with the number of their sample."""

    def __init__(self, evaluator):
        self._conf = evaluator.conf
        self._inputs = evaluator.inputs
        self.file = open(self._conf["result_file"], "w")
        with open(self._conf["dict_file"]) as file:
            self._words = [line.split("\t")[0].strip() for line in file]

    def write(self, values):
        made = values[id(self._inputs[0])]
        numbers = values[id(self._inputs[1])].data.numpy().reshape(-1) if len(self._inputs) > 1 else None
        sentences = made.extra["sentences"] if made.extra and "sentences" in made.extra else _sentences(made)
        joint = " " if self._conf["delimited"] else ""
        for number, results in enumerate(sentences):
            self.file.write(f"{number if numbers is None else numbers[number]}\n")
            for rank, (score, ids) in enumerate(results):
                self.file.write(f"{rank}\t{score:g}\t{joint.join(self._words[each] for each in ids)}\n")


def _sentences(value):
    """Plain sequences of ids, which have no score."""
    ids = value.data.numpy().reshape(-1).tolist()
    return [[(0.0, ids[a:b])] for a, b in zip(value.starts, value.starts[1:])]
