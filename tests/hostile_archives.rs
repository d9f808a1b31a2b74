//! Small archives that unfold without bound, or nest without end: each ends in an error or in the right numbers, on a thread
//! with a stack of 2 MiB.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod hostile;

use hostile::{archive, module, program};
use onionskin::budget::Limits;
use onionskin::item::Item;
use onionskin::{Model, Tensor};

/// Imports an archive for a small matrix, and runs it on the host. Returns the output, or the message and the help of the
/// error.
fn run(bytes: Vec<u8>) -> Result<Vec<f64>, String> {
    // The default takes seconds in a build for debugging.
    let steps = 16 << 20;
    let limits = Limits {
        steps,
        ..Limits::default()
    };
    run_within(bytes, limits)
}

fn run_within(bytes: Vec<u8>, limits: Limits) -> Result<Vec<f64>, String> {
    let thread = std::thread::Builder::new().stack_size(2 << 20);
    let work = move || -> onionskin::Result<Vec<f64>> {
        let x = Item::Tensor(Tensor::from_vec([2, 2], vec![1f32, 2.0, 3.0, 4.0])?);
        let model = Model::from_bytes_with(bytes, &limits)?;
        let session = model.compile(&onionskin::Device::Host, &Default::default())?;
        let output = session.call(&[x])?;
        Ok(output
            .tensors()
            .first()
            .map(|tensor| tensor.to_f64())
            .unwrap_or_default())
    };
    let result = thread.spawn(work).unwrap().join().expect("no panic");
    result.map_err(|error| format!("{error} {}", error.advice().unwrap_or_default()))
}

fn refused(bytes: Vec<u8>, expected: &str) {
    let error = run(bytes).unwrap_err();
    assert!(error.contains(expected), "{error}");
}

/// A loop of statements, and the result `x`.
fn repeated(before: &str, times: usize, body: &str, after: &str) -> Vec<u8> {
    program(
        &format!("{before}    for i in range({times}):\n{body}{after}    return x\n"),
        "",
    )
}

#[test]
fn values_that_double_reach_the_limit_of_length() {
    let before = "    t = \"aaaaaaaaaa\"\n";
    refused(
        repeated(before, 60, "      t = torch.format(\"{}{}\", t, t)\n", ""),
        "--limit length=N",
    );
    refused(
        repeated(
            before,
            60,
            "      t = torch.replace(t, \"a\", \"aa\")\n",
            "",
        ),
        "--limit length=N",
    );
    refused(
        repeated(before, 60, "      t = torch.add(t, t)\n", ""),
        "--limit length=N",
    );
    let before = "    t = (1, 2)\n";
    refused(
        repeated(before, 60, "      t = torch.add(t, t)\n", ""),
        "--limit length=N",
    );
    let before = "    t = annotate(List[int], [1, 2])\n";
    refused(
        repeated(before, 60, "      t = torch.add(t, t)\n", ""),
        "--limit length=N",
    );
    refused(
        repeated(before, 60, "      _0 = torch.extend(t, t)\n", ""),
        "--limit length=N",
    );
}

#[test]
fn copies_of_a_long_list_reach_the_limit_of_values() {
    let before = "    b = annotate(List[Any], [])\n    l = torch.mul([1], 1000000)\n";
    refused(
        repeated(
            before,
            1000,
            "      _0 = torch.append(b, torch.list(l))\n",
            "",
        ),
        "--limit values=N",
    );
}

#[test]
fn shared_values_are_not_walked_as_trees_without_end() {
    let before = "    l = annotate(List[Any], [1])\n";
    let double = "      l = [l, l]\n";
    refused(
        repeated(before, 60, double, "    t = torch.eq(l, l)\n"),
        "--limit steps=N",
    );
    refused(
        repeated(before, 60, double, "    t = torch.format(\"{}\", l)\n"),
        "--limit steps=N",
    );
    assert_eq!(
        run(repeated(before, 60, double, "    q = l[0]\n")),
        Ok(vec![1.0, 2.0, 3.0, 4.0])
    );
    let result = program(
        "    l = [x]\n    for i in range(60):\n      l = [l, l]\n    return l\n",
        "",
    );
    refused(result, "--limit steps=N");
    let before = "    l = torch.mul([1], 1000000)\n";
    assert!(run(repeated(before, 2_000, "      n = torch.len(l)\n", "")).is_ok());
}

#[test]
fn values_may_nest_deeper_than_the_stack_until_they_are_walked() {
    let before = "    l = annotate(List[Any], [])\n";
    assert!(run(repeated(before, 4_000, "      l = [l]\n", "")).is_ok());
    assert!(run(repeated(before, 4_000, "      l = (l,)\n", "")).is_ok());
    refused(
        repeated(before, 4_000, "      l = [l]\n", "    t = torch.eq(l, l)\n"),
        "nested more than",
    );
    refused(
        repeated(
            before,
            4_000,
            "      l = {1: l}\n",
            "    t = torch.format(\"{}\", l)\n",
        ),
        "nested more than",
    );
}

#[test]
fn values_that_contain_themselves_are_refused_when_they_are_walked() {
    let before = "    l = annotate(List[Any], [])\n    _0 = torch.append(l, l)\n";
    refused(
        repeated(before, 1, "      m = torch.eq(l, l)\n", ""),
        "contain itself",
    );
    refused(
        repeated(before, 1, "      m = torch.format(\"{}\", l)\n", ""),
        "contain itself",
    );
    assert!(run(repeated(before, 1, "      m = l[0]\n", "")).is_ok());
    refused(
        program(&format!("{before}    return l\n"), ""),
        "contain itself",
    );
    let branch = "    if bool(torch.gt(torch.sum(x), 0)):\n      q = l\n    else:\n      q = [l]\n    return x\n";
    refused(program(&format!("{before}{branch}"), ""), "contain itself");
}

#[test]
fn calls_and_nesting_share_one_depth() {
    let call = "    return self.forward(x)\n";
    refused(program(call, ""), "nested more than");
    let nested = |depth: usize| format!("{}x{}", "torch.relu(".repeat(depth), ")".repeat(depth));
    assert!(run(program(&format!("    return {}\n", nested(100)), "")).is_ok());
    let functions = (0..90).map(|index| {
        let argument = nested(90);
        let next = format!("__torch__.f{}({argument})", index + 1);
        let (open, close) = ("torch.relu(".repeat(90), ")".repeat(90));
        format!("def f{index}(x: Tensor) -> Tensor:\n  return {open}{next}{close}\n")
    });
    let functions: String = functions.collect::<Vec<_>>().concat();
    let last = "def f90(x: Tensor) -> Tensor:\n  return x\n";
    refused(
        program(
            "    return __torch__.f0(x)\n",
            &format!("{functions}{last}"),
        ),
        "nested more than",
    );
}

#[test]
fn source_is_parsed_as_deep_as_the_limit() {
    let expressions = ["torch.relu(", "[", "("].map(|open| {
        let close = if open == "[" { "]" } else { ")" };
        format!("  y = {}x{}\n", open.repeat(250), close.repeat(250))
    });
    let blocks = (0..250).map(|depth| format!("{:1$}if b:\n", "", 2 + depth));
    let blocks = blocks.collect::<String>() + &" ".repeat(252) + "pass\n";
    let ty = format!("{}int{}", "List[".repeat(250), "]".repeat(250));
    let annotated = format!("  y = annotate({ty}, [])\n");
    for body in expressions.into_iter().chain([blocks, annotated]) {
        let unused = format!("def f(x: Tensor, b: bool) -> Tensor:\n{body}  return x\n");
        assert!(run(program("    return x\n", &unused)).is_ok(), "{body}");
    }
    let deep = format!(
        "    return {}x{}\n",
        "torch.relu(".repeat(300),
        ")".repeat(300)
    );
    refused(program(&deep, ""), "nested more than 256 deep");
}

#[test]
fn long_source_reaches_the_limit_of_bytes() {
    let source = "    x = torch.add(x, x)\n".repeat(20_000);
    let limits = Limits {
        bytes: 16 << 20,
        ..Limits::default()
    };
    let error = run_within(program(&format!("{source}    return x\n"), ""), limits).unwrap_err();
    assert!(error.contains("--limit bytes=N"), "{error}");
}

#[test]
fn loops_and_inlined_calls_reach_the_limit_of_steps() {
    refused(
        repeated("", 2_000_000_000, "      pass\n", ""),
        "--limit steps=N",
    );
    let twice = (0..60).map(|index| {
        let next = index + 1;
        format!("def f{index}(x: Tensor) -> Tensor:\n  y = __torch__.f{next}(x)\n  return __torch__.f{next}(y)\n")
    });
    let twice: String = twice.collect::<Vec<_>>().concat();
    let last = "def f60(x: Tensor) -> Tensor:\n  return x\n";
    refused(
        program("    return __torch__.f0(x)\n", &format!("{twice}{last}")),
        "--limit steps=N",
    );
}

#[test]
fn an_error_in_a_long_line_shows_its_surroundings() {
    let error = run(program(
        &format!("    return {}$\n", " ".repeat(70_000)),
        "",
    ))
    .unwrap_err();
    assert!(error.contains("unexpected character '$'"), "{error}");
    assert!(error.len() < 1000, "{} characters", error.len());
}

#[test]
fn pickles_that_unfold_reach_the_limit_of_values() {
    let source = (
        "code/__torch__.py",
        b"class M(Module):\n  training : bool\n".to_vec(),
    );
    let many = [b"\x80\x02(".to_vec(), vec![b'N'; 6_000_000], b"t.".to_vec()].concat();
    refused(archive(vec![source.clone()], &many), "--limit values=N");
    // A tuple of 100,000 sizes, used by each of 1,000 tensors.
    let sizes = [b"(".to_vec(), b"K\x01".repeat(100_000), b"tq\x01".to_vec()].concat();
    let storage = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x01tQ";
    let tensor = [
        b"ctorch._utils\n_rebuild_tensor_v2\n(",
        &storage[..],
        b"K\0h\x01h\x01\x89}tR",
    ]
    .concat();
    let tensors = [
        b"\x80\x02".to_vec(),
        sizes,
        b"(".to_vec(),
        tensor.repeat(1_000),
        b"t.".to_vec(),
    ]
    .concat();
    refused(archive(vec![source.clone()], &tensors), "--limit values=N");
    // A list of two references to the previous one, 60 times.
    let doubled: Vec<u8> = (0..60u8)
        .flat_map(|index| {
            [
                b']',
                b'q',
                index,
                b'(',
                b'h',
                index.wrapping_sub(1),
                b'h',
                index.wrapping_sub(1),
                b'e',
            ]
        })
        .collect();
    let doubled = [b"\x80\x02]q\xff", &doubled[..], b"."].concat();
    let error = run(archive(vec![source], &doubled)).unwrap_err();
    assert!(error.contains("--limit values=N"), "{error}");
}

#[test]
fn inflated_records_and_expanded_tensors_reach_the_limit_of_bytes() {
    let weight = |index: usize, sizes: &[u8], strides: &[u8]| {
        let name = format!("w{index:03}");
        let mut bytes = vec![b'X', 4, 0, 0, 0];
        bytes.extend(name.as_bytes());
        let storage =
            b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuJ\0\0\x10\0tQ";
        bytes.extend(b"ctorch._utils\n_rebuild_tensor_v2\n(");
        bytes.extend(storage);
        // Each tensor starts at another element, so that no two are the same.
        let offset = [b'K', index as u8];
        bytes.extend([&offset[..], b"(", sizes, b"t(", strides, b"t\x89}tR"].concat());
        bytes
    };
    let sums = |count: usize| {
        let lines =
            (0..count).map(|index| format!("    x = torch.add(x, torch.sum(self.w{index:03}))\n"));
        let lines: String = lines.collect::<Vec<_>>().concat();
        let declared: String = (0..count)
            .map(|index| format!("  w{index:03} : Tensor\n"))
            .collect();
        format!(
            "class M(Module):\n  training : bool\n{declared}  def forward(self: __torch__.M,\n    x: Tensor) -> Tensor:\n{lines}    return x\n"
        )
    };
    let with = |count: usize, sizes: &[u8], strides: &[u8]| {
        let weights: Vec<u8> = (0..count)
            .flat_map(|index| weight(index, sizes, strides))
            .collect();
        let records = vec![
            ("data/0", vec![0; 4 << 20]),
            ("code/__torch__.py", sums(count).into_bytes()),
        ];
        archive(records, &module(&weights))
    };
    assert_eq!(
        run(with(2, b"J\0\0\x0f\0", b"K\x01")),
        Ok(vec![1.0, 2.0, 3.0, 4.0])
    );
    // One storage, of which a thousand tensors are the whole.
    let lowered = Limits {
        bytes: 64 << 20,
        ..Limits::default()
    };
    let error = run_within(with(100, b"J\0\0\x0f\0", b"K\x01"), lowered).unwrap_err();
    assert!(error.contains("--limit bytes=N"), "{error}");
    // One element, expanded to 2^31.
    refused(with(1, b"J\0\0\0\x40K\x02", b"K\0K\0"), "--limit bytes=N");
}

#[test]
fn sizes_that_grow_reach_a_limit() {
    // The size is 1 in the example, so that its powers stay small numbers.
    let squares = "    n = torch.size(x, 0)\n    n = torch.floordiv(n, 2)\n";
    let body = "      n = torch.mul(n, n)\n";
    let after = "    x = torch.mul(x, n)\n";
    refused(repeated(squares, 70, body, after), "--limit values=N");
    let sizes = "    n = torch.size(x, 0)\n    m = torch.size(x, 1)\n";
    let nested =
        "      n = torch.remainder(torch.mul(torch.add(n, m), torch.add(n, 1)), torch.add(m, 7))\n";
    refused(repeated(sizes, 300, nested, after), "--limit values=N");
    let outer = "    y = torch.select(x, 1, 0)\n";
    let body = "      y = torch.flatten(torch.outer(y, y))\n";
    refused(repeated(outer, 60, body, ""), "--limit");
}
