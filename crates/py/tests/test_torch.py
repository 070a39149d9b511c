"""`paddlecloud.torch` under a real DataLoader, where torch is installed."""

import pickle

import pytest

torch_data = pytest.importorskip("torch.utils.data")

from paddlecloud.torch import IndexedRecordDataset, RecordDataset  # noqa: E402

COUNT = 100


def number(record):
    return int(record[:3])


@pytest.fixture
def files(write_records):
    return [
        write_records([b"%03d" % i + b"." * 5000 for i in range(start, stop)], f"part-{start}", chunk_size=50_000)
        for start, stop in [(0, 70), (70, COUNT)]
    ]


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("shuffle", [False, True])
def test_workers_share_the_records_of_all_trainers(files, workers, shuffle):
    found = []
    for rank in range(2):
        data = RecordDataset(files, decode=number, shuffle=shuffle, buffer_size=20, rank=rank, world_size=2)
        assert isinstance(data, torch_data.IterableDataset)
        for batch in torch_data.DataLoader(data, batch_size=7, num_workers=workers):
            found += batch.tolist()
    assert sorted(found) == list(range(COUNT))


def test_set_epoch_reaches_the_workers(files):
    data = RecordDataset(files, decode=number, shuffle=True, buffer_size=50)
    loader = torch_data.DataLoader(data, batch_size=None, num_workers=2)
    epochs = []
    for epoch in (0, 1, 0):
        data.set_epoch(epoch)
        epochs.append([int(sample) for sample in loader])
    assert epochs[0] == epochs[2] != epochs[1]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(COUNT))


def test_a_state_made_in_one_worker_is_refused_in_another(files):
    data = RecordDataset(files, decode=number)
    state = data.state_dict()
    state["made_for"]["workers"] = 4
    with pytest.raises(ValueError, match="workers was 4, now 1"):
        data.load_state_dict(state)


@pytest.mark.parametrize("shuffle", [False, True])
def test_reading_resumes_at_the_record(files, shuffle):
    def made():
        return RecordDataset(files, decode=number, shuffle=shuffle, buffer_size=20, rank=1, world_size=2)

    whole = [int(sample) for sample in torch_data.DataLoader(made(), batch_size=None)]
    data = made()
    samples = iter(torch_data.DataLoader(data, batch_size=None))
    first = [int(next(samples)) for _ in range(33)]
    state = pickle.loads(pickle.dumps(data.state_dict()))
    again = made()
    again.load_state_dict(state)
    assert first + [int(sample) for sample in torch_data.DataLoader(again, batch_size=None)] == whole


@pytest.fixture
def stateful_loader():
    return pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader


@pytest.mark.parametrize(("workers", "batch_size"), [(0, 7), (1, 7), (1, 4), (3, 4)])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_loader_with_workers_resumes_in_the_middle_of_an_epoch(files, stateful_loader, workers, batch_size, shuffle):
    def made():
        data = RecordDataset(files, decode=number, shuffle=shuffle, buffer_size=20)
        data.set_epoch(2)
        return stateful_loader(data, batch_size=batch_size, num_workers=workers)

    whole = [batch.tolist() for batch in made()]
    assert sorted(sample for batch in whole for sample in batch) == list(range(COUNT))
    # The shares of three workers end at different times: some are through when the last states are taken.
    for taken in [0, 1, 10, len(whole) - 2, len(whole) - 1, len(whole)]:
        loader = made()
        batches = iter(loader)
        first = [next(batches).tolist() for _ in range(taken)]
        state = pickle.loads(pickle.dumps(loader.state_dict()))
        again = made()
        again.load_state_dict(state)
        assert first + [batch.tolist() for batch in again] == whole, f"after {taken} batches"


def test_a_loader_that_resumes_with_other_workers_says_so(files, stateful_loader):
    def made(workers):
        return stateful_loader(RecordDataset(files, decode=number), batch_size=4, num_workers=workers)

    loader = made(2)
    batches = iter(loader)
    next(batches)
    again = made(3)
    with pytest.raises(Exception, match="num_workers|workers"):
        again.load_state_dict(loader.state_dict())
        list(again)


def test_persistent_workers_continue_with_the_next_epoch(files):
    data = RecordDataset(files, decode=number, shuffle=True, buffer_size=50)
    loader = torch_data.DataLoader(data, batch_size=None, num_workers=2, persistent_workers=True)
    epochs = [[int(sample) for sample in loader] for _ in range(2)]
    assert epochs[0] != epochs[1]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(COUNT))


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.parametrize("kind", [RecordDataset, IndexedRecordDataset])
def test_workers_may_be_forked_or_spawned(files, start, kind):
    data = kind(files, decode=number)
    next(iter(data)) if kind is RecordDataset else data[0]  # Files are open when the workers begin.
    loader = torch_data.DataLoader(data, batch_size=10, num_workers=2, multiprocessing_context=start)
    assert sorted(sample for batch in loader for sample in batch.tolist()) == list(range(COUNT))


@pytest.mark.parametrize("workers", [0, 2])
def test_an_indexed_dataset_serves_a_sampler(files, workers):
    data = IndexedRecordDataset(files, decode=number)
    assert len(data) == COUNT
    assert (data[3], data[-1], data.__getitems__([99, 0])) == (3, 99, [99, 0])
    loader = torch_data.DataLoader(data, batch_size=9, shuffle=True, num_workers=workers)
    found = [sample for batch in loader for sample in batch.tolist()]
    assert sorted(found) == list(range(COUNT))
    assert found != list(range(COUNT))


def test_without_a_decoder_records_are_bytes(files):
    assert IndexedRecordDataset(files)[0][:4] == b"000."
    assert next(iter(RecordDataset(files)))[:4] == b"000."
    assert pickle.loads(pickle.dumps(IndexedRecordDataset(files)))[1][:3] == b"001"
