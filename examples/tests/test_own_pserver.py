"""The example own_pserver: its parts, and the whole of it on real sockets and real processes."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "own_pserver")
sys.path.insert(0, PACKAGE)

import model  # noqa: E402
import train  # noqa: E402
from pserver import ParameterServer, Shard  # noqa: E402
from wire import Connection, parse_address, shard  # noqa: E402

LIMIT = 300


class ShardTest(unittest.TestCase):
    def test_shards_cover_every_parameter_once(self):
        for count in range(1, 8):
            parts = [shard(list(range(5)), index, count) for index in range(count)]
            self.assertEqual([value for part in parts for value in part], list(range(5)))
            sizes = [len(part) for part in parts]
            self.assertLessEqual(max(sizes) - min(sizes), 1)

    def test_a_round_ends_with_the_mean_of_all_gradients(self):
        held = Shard([1.0], trainers=2, learning_rate=0.5)
        held.push(0, 0, [2.0])
        self.assertEqual(held.pull(0), (0, [1.0]))
        held.push(0, 1, [4.0])
        self.assertEqual(held.pull(1), (1, [-0.5]))

    def test_a_trainer_counts_once_per_round(self):
        held = Shard([1.0], trainers=2, learning_rate=1.0)
        held.push(0, 0, [1.0])
        held.push(0, 0, [1.0])
        self.assertEqual(held.pull(0)[0], 0)

    def test_a_gradient_of_an_old_round_changes_nothing(self):
        held = Shard([1.0], trainers=1, learning_rate=1.0)
        held.push(0, 0, [1.0])
        held.push(0, 0, [1.0])
        self.assertEqual(held.pull(1), (1, [0.0]))

    def test_a_gradient_of_the_wrong_size_is_refused(self):
        with self.assertRaises(ValueError):
            Shard([1.0], trainers=1, learning_rate=1.0).push(0, 0, [1.0, 2.0])


class ModelTest(unittest.TestCase):
    def test_every_trainer_has_its_own_data(self):
        self.assertNotEqual(model.samples(0), model.samples(1))
        self.assertEqual(model.samples(1), model.samples(1))

    def test_the_gradient_is_the_slope_of_the_loss(self):
        batch = model.samples(0)[:8]
        parameters = [0.3, -0.1, 0.2, 0.9, 0.5]
        _, gradient = model.loss_and_gradient(parameters, batch)
        step = 1e-6
        for i, slope in enumerate(gradient):
            up, down = list(parameters), list(parameters)
            up[i] += step
            down[i] -= step
            measured = (model.loss_and_gradient(up, batch)[0] - model.loss_and_gradient(down, batch)[0]) / (2 * step)
            self.assertAlmostEqual(slope, measured, places=4)


class TrainingTest(unittest.TestCase):
    def setUp(self):
        self.servers = []

    def tearDown(self):
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def start_servers(self, count, trainers):
        for index in range(count):
            held = Shard(shard(model.INITIAL, index, count), trainers, model.LEARNING_RATE)
            server = ParameterServer(("127.0.0.1", 0), held)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self.servers.append(server)
        return [server.server_address for server in self.servers]

    def test_trainers_and_servers_find_the_line_together(self):
        addresses = self.start_servers(2, trainers=3)
        learned = {}

        def run(trainer, output):
            servers = train.Servers(addresses)
            learned[trainer] = train.train(servers, trainer, passes=2, output=output)
            servers.close()

        with tempfile.TemporaryDirectory() as output:
            threads = [threading.Thread(target=run, args=(i, output), daemon=True) for i in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(LIMIT)
            self.assertEqual(sorted(os.listdir(output)), ["pass-00000", "pass-00001"])
            last = os.path.join(output, "pass-00001")
            self.assertEqual(sorted(os.listdir(last)), ["done", "parameters.json"])
            with open(os.path.join(last, "parameters.json")) as file:
                saved = json.load(file)
        self.assertEqual(saved["weights"] + [saved["bias"]], learned[0])
        self.assertEqual(learned[0], learned[1])
        self.assertEqual(learned[0], learned[2])
        self.assertLess(model.farthest_from_truth(learned[0]), train.CLOSE_ENOUGH)

    def test_a_bad_request_gets_an_error_and_the_server_continues(self):
        connection = Connection(self.start_servers(1, trainers=1)[0])
        with self.assertRaisesRegex(RuntimeError, "bad request"):
            connection.ask(op="guess")
        self.assertEqual(connection.ask(op="pull", round=0)["round"], 0)
        connection.close()


class ProgramTest(unittest.TestCase):
    """The programs as a worker runs them, by their environment."""

    def start(self, program, **environment):
        variables = dict(os.environ, PYTHONUNBUFFERED="1", **environment)
        process = subprocess.Popen(
            [sys.executable, os.path.join(PACKAGE, program)],
            env=variables, cwd=self.folder.name, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def start_pserver(self):
        process = self.start(
            "pserver.py", PADDLE_PSERVER_ID="0", PADDLE_PSERVERS_IP_PORT_LIST="127.0.0.1:0",
            PADDLE_INIT_NUM_GRADIENT_SERVERS="1", POD_IP="127.0.0.1", PADDLE_PORT="0")
        hello = process.stdout.readline()
        self.assertIn("holding 5 of 5 parameters on 127.0.0.1:", hello)
        return process, hello.split()[-1]

    def test_a_server_that_is_asked_to_stop_ends_well(self):
        process, address = self.start_pserver()
        connection = Connection(parse_address(address))
        self.assertEqual(connection.ask(op="pull", round=0)["values"], model.INITIAL)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(LIMIT), 0)
        self.assertEqual(process.stdout.read(), "stopped after round 0\n")
        connection.close()

    def test_one_trainer_and_one_server_find_the_line(self):
        _, address = self.start_pserver()
        trainer = self.start(
            "train.py", PADDLE_INIT_TRAINER_ID="0", PADDLE_INIT_NUM_GRADIENT_SERVERS="1",
            PADDLE_INIT_NUM_PASSES="1", PADDLE_PSERVERS_IP_PORT_LIST=address)
        printed = trainer.stdout.read()
        self.assertEqual(trainer.wait(LIMIT), 0, printed)
        self.assertIn("pass 0 batch   0 loss", printed)
        self.assertTrue(os.path.exists(os.path.join(self.folder.name, "output", "pass-00000", "done")))


if __name__ == "__main__":
    unittest.main()
