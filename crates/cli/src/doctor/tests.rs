//! Programs from 2017 before and after.

use super::*;

fn fixed(text: &str) -> String {
    examine(text).unwrap().fixed
}

/// `line: message` of everything that needs a person.
fn problems(text: &str) -> Vec<String> {
    let found = examine(text).unwrap().problems;
    found
        .iter()
        .map(|problem| format!("{}: {}", problem.line, problem.message))
        .collect()
}

#[test]
fn print_becomes_a_function() {
    for (before, after) in [
        ("print \"a\"\n", "print(\"a\")\n"),
        ("print 'pass %d' % 3\n", "print('pass %d' % 3)\n"),
        ("print a, b\n", "print(a, b)\n"),
        ("print a,\n", "print(a, end=\" \")\n"),
        ("print\n", "print()\n"),
        ("print >>sys.stderr, a, b\n", "print(a, b, file=sys.stderr)\n"),
        (
            "print \"\\nPass %d, %s\" % (\n    a, b)\n",
            "print(\"\\nPass %d, %s\" % (\n    a, b))\n",
        ),
        ("if a: print b\n", "if a: print(b)\n"),
        ("print(prediction + 5) / 2\n", "print((prediction + 5) / 2)\n"),
    ] {
        assert_eq!(fixed(before), after);
        assert_eq!(fixed(after), after, "it is done once");
    }
}

#[test]
fn valid_python_3_is_unchanged() {
    let text = "print(a, b)\nprint('x' % y)\nimport pickle\nf = open('x', 'w')\nf.write('y')\nd.items()\n";
    assert_eq!(fixed(text), text);
    assert_eq!(problems(text), [""; 0]);
}

#[test]
fn pickles_of_python_2_can_be_read() {
    assert_eq!(fixed("import cPickle as pickle\n"), "import pickle\n");
    assert_eq!(fixed("import cPickle\n"), "import pickle as cPickle\n");
    assert_eq!(fixed("import cPickle as p, os\n"), "import pickle as p, os\n");
    assert_eq!(fixed("from cPickle import load\n"), "from pickle import load\n");
    assert_eq!(
        fixed("x = pickle.loads(d)\n"),
        "x = pickle.loads(d, encoding=\"latin1\")\n"
    );
    assert_eq!(fixed("json.loads(d)\n"), "json.loads(d)\n");
}

#[test]
fn parameters_and_pickles_are_bytes() {
    for (before, after) in [
        (
            "with open('p.tar', 'w') as f:\n    parameters.to_tar(f)\n",
            "with open('p.tar', 'wb') as f:\n    parameters.to_tar(f)\n",
        ),
        (
            "with open('p_%d.tar' % n, mode='r') as f:\n    Parameters.from_tar(f)\n",
            "with open('p_%d.tar' % n, mode='rb') as f:\n    Parameters.from_tar(f)\n",
        ),
        (
            "f = open('m.bin')\nmeta = pickle.load(f)\n",
            "f = open('m.bin', \"rb\")\nmeta = pickle.load(f, encoding=\"latin1\")\n",
        ),
        (
            "with open('a', 'w') as f, open('b', 'w') as g:\n    p.to_tar(g)\n    f.write('x')\n",
            "with open('a', 'w') as f, open('b', 'wb') as g:\n    p.to_tar(g)\n    f.write('x')\n",
        ),
        (
            "with open('a', 'w') as f:\n    json.dump(x, f)\n",
            "with open('a', 'w') as f:\n    json.dump(x, f)\n",
        ),
    ] {
        assert_eq!(fixed(before), after);
        assert_eq!(fixed(after), after, "it is done once");
    }
}

#[test]
fn other_syntax_of_python_2_is_replaced() {
    let before = "for k, v in d.iteritems():\n    for i in xrange(3):\n        if d.has_key(k) and i <> 2:\n            pass\n";
    let after =
        "for k, v in d.items():\n    for i in range(3):\n        if (k in d) and i != 2:\n            pass\n";
    assert_eq!(fixed(before), after);
    assert_eq!(
        fixed("try:\n    pass\nexcept IOError, e:\n    raise ValueError, 'x'\n"),
        "try:\n    pass\nexcept IOError as e:\n    raise ValueError('x')\n"
    );
    assert_eq!(
        fixed("im = im.resize((28, 28), Image.ANTIALIAS)\nx = Image.open(f)\n"),
        "im = im.resize((28, 28), Image.LANCZOS)\nx = Image.open(f)\n"
    );
}

#[test]
fn literals_and_modules_of_python_2_are_replaced() {
    for (before, after) in [
        ("os.chmod(f, 0644)\n", "os.chmod(f, 0o644)\n"),
        ("n = 10L + 0 + 00\n", "n = 10 + 0 + 00\n"),
        ("s = `a + 1`\n", "s = repr(a + 1)\n"),
        ("import StringIO, os\n", "import io as StringIO, os\n"),
        ("from cStringIO import StringIO\n", "from io import StringIO\n"),
        ("import urllib2\n", "import urllib.request as urllib2\n"),
        (
            "from itertools import izip\n",
            "from builtins import zip as izip\n",
        ),
        (
            "for a, b in itertools.izip(x, y): pass\n",
            "for a, b in zip(x, y): pass\n",
        ),
        (
            "isinstance(x, basestring) and long(y) < sys.maxint\n",
            "isinstance(x, str) and int(y) < sys.maxsize\n",
        ),
    ] {
        assert_eq!(fixed(before), after);
        assert_eq!(fixed(after), after, "it is done once");
    }
}

#[test]
fn results_that_are_used_as_lists_become_lists() {
    for (before, after) in [
        ("a = map(int, x)[0]\n", "a = list(map(int, x))[0]\n"),
        ("n = len(map(f, x))\n", "n = len(list(map(f, x)))\n"),
        (
            "n = len(filter(f, zip(a, b)[1:]))\n",
            "n = len(list(filter(f, list(zip(a, b))[1:])))\n",
        ),
        (
            "k = d.keys()[0] + (d.items())[-1][0]\n",
            "k = list(d.keys())[0] + (list(d.items()))[-1][0]\n",
        ),
        ("x = xrange(3) + [9]\n", "x = list(range(3)) + [9]\n"),
        (
            "print map(f, x), d.keys()\n",
            "print(list(map(f, x)), list(d.keys()))\n",
        ),
        ("d.items().sort()\n", "list(d.items()).sort()\n"),
        (
            "def f(x):\n    y = map(int, x)\n    return y[0], len(y)\n",
            "def f(x):\n    y = list(map(int, x))\n    return y[0], len(y)\n",
        ),
        ("x = map(f, x)\nx = x[1:]\n", "x = list(map(f, x))\nx = x[1:]\n"),
        (
            "order = range(9)\nrandom.shuffle(order)\n",
            "order = list(range(9))\nrandom.shuffle(order)\n",
        ),
        (
            "order = range(9)\norder[0] = 1\n",
            "order = list(range(9))\norder[0] = 1\n",
        ),
    ] {
        assert_eq!(fixed(before), after);
        assert_eq!(fixed(after), after, "it is done once");
    }
}

#[test]
fn results_that_work_in_python_3_stay() {
    let text = "for a in map(f, x): pass\na, b = zip(*x)\nn = len(d.keys()) + len(range(3))\ny = range(9)\nz = y[0]\n\
                m = map(f, x)\nm = sorted(m)\nm[0]\npool.map(f, x)[0]\nx[map] = 1\nlist(zip(a, b))[0]\nd.keys(1)[0]\n";
    assert_eq!(fixed(text), text);
}

#[test]
fn unsupported_names_are_found_by_any_way_to_them() {
    let text = "import paddle.v2 as paddle\nimport paddle.v2.evaluator as evaluator\nfrom paddle.v2 import layer\n\
                a = paddle.layer.fc(x, 1)\nb = paddle.layer.ctc(x, y)\nc = evaluator.pnpair(a, b)\nd = layer.hsigmoid(a)\n\
                from paddle.v2.layer import nce\nimport paddle.v2.fluid as fluid\nfrom paddle.trainer.config_parser import parse_config\n\
                from paddle.trainer.PyDataProvider2 import provider\nfrom py_paddle import swig_paddle\n";
    let found = problems(text);
    let lines: Vec<&str> = found
        .iter()
        .map(|line| line.split("supported").next().unwrap())
        .collect();
    assert_eq!(lines[0], "5: `paddle.layer.ctc` is not ");
    assert_eq!(lines[1], "6: `evaluator.pnpair` is not ");
    assert_eq!(lines[2], "7: `layer.hsigmoid` is not ");
    assert_eq!(lines[3], "8: `paddle.v2.layer.nce` is not ");
    assert_eq!(lines[4], "9: `paddle.v2.fluid` is not ");
    assert_eq!(lines[5], "10: `paddle.trainer.config_parser` is not ");
    assert_eq!(lines[6], "12: `py_paddle` is not ");
    assert!(found[0].contains("ctc_loss"), "{}", found[0]);
    assert_eq!(found.len(), 7);
}

#[test]
fn a_v1_configuration_is_read_by_its_own_names() {
    let text = "from paddle.trainer_config_helpers import *\na = fc_layer(input=x, size=1)\nb = ctc_layer(input=a)\n\
                value_printer_evaluator(input=a)\nc = hsigmoid(input=a)\nprint('x')\npad(b)\nseqtext_printer_evaluator(input=b)\noutputs(b)\n";
    let found = problems(text);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[2].starts_with("5: `hsigmoid` is not supported: "));
    assert!(found[0].starts_with("3: `ctc_layer` is not supported: "));
    assert!(found[1].starts_with("4: `value_printer_evaluator` is not supported: "));
}

#[test]
fn graphics_cards_and_broken_lines_are_reported() {
    assert_eq!(
        problems("import paddle.v2 as paddle\npaddle.init(use_gpu=True, trainer_count=1)\n"),
        ["2: programs from 2017 run on CPUs only: call `paddle.init(use_gpu=False)`"]
    );
    assert_eq!(problems("a = 1\nb = = 2\n"), ["2: this is not Python"]);
    assert!(
        problems("f = lambda (a, b): a\n")[0].starts_with("1: Python 3 has no parameters in parentheses")
    );
}

#[test]
fn a_patch_has_the_changed_lines_and_their_surroundings() {
    let before = "1\n2\n3\n4\nprint 5\n6\n7\n8\n9\n10\n11\n12\n13\n14\nprint 15";
    let after = fixed(before);
    assert_eq!(
        unified("a.py", before, &after),
        "--- a.py\n+++ a.py\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-print 5\n+print(5)\n 6\n 7\n 8\n@@ -12,4 +12,4 @@\n 12\n 13\n 14\n-print 15\n\
         \\ No newline at end of file\n+print(15)\n\\ No newline at end of file\n"
    );
    assert_eq!(unified("a.py", before, before), "");
}
