use super::*;
use crate::trace::script::ast::{CallExpr, Callee};

fn expression(text: &str) -> Result<AstExprKind> {
    let budget = Budget::default();
    let mut parser = Parser::new("t.py", text, &budget)?;
    let value = parser.expression()?;
    parser.end_of_line()?;
    Ok(value.kind)
}

fn body(lines: &str) -> Vec<StmtKind> {
    let text = format!("def f(x: Tensor) -> Tensor:\n{lines}");
    let file = parse_file("t.py", "__torch__", &text, &Budget::default()).unwrap();
    let statements = file.functions.into_iter().next().unwrap().body;
    statements
        .into_iter()
        .map(|statement| statement.kind)
        .collect()
}

fn call(text: &str) -> CallExpr {
    match expression(text).unwrap() {
        AstExprKind::Call(call) => *call,
        other => panic!("{other:?}"),
    }
}

#[test]
fn literals() {
    assert_eq!(
        expression("-9223372036854775808").unwrap(),
        AstExprKind::Int(i64::MIN)
    );
    assert_eq!(expression("-100.").unwrap(), AstExprKind::Float(-100.0));
    assert_eq!(
        expression("1.0000000000000001e-05").unwrap(),
        AstExprKind::Float(1e-5)
    );
    assert_eq!(
        expression("-inf").unwrap(),
        AstExprKind::Float(f64::NEG_INFINITY)
    );
    assert_eq!(
        expression("\"a\\n\"").unwrap(),
        AstExprKind::Str("a\n".into())
    );
    assert_eq!(expression("()").unwrap(), AstExprKind::Tuple(vec![]));
    assert_eq!(expression("((None))").unwrap(), AstExprKind::None);
    assert!(matches!(expression("(1,)").unwrap(), AstExprKind::Tuple(items) if items.len() == 1));
    assert!(
        matches!(expression("{\"k\": 1, \"l\": 2}").unwrap(), AstExprKind::Dict(entries) if entries.len() == 2)
    );
    assert_eq!(
        expression("CONSTANTS.c12").unwrap(),
        AstExprKind::Constant(12)
    );
}

#[test]
fn calls() {
    let add = call("torch.add(x, 1, alpha=2)");
    assert_eq!(add.callee, Callee::Operator("aten::add".into()));
    assert_eq!(
        (add.arguments.len(), add.keywords[0].0.as_str()),
        (2, "alpha")
    );
    assert_eq!(
        call("ops.prim.NumToTensor(n)").callee,
        Callee::Operator("prim::NumToTensor".into())
    );
    assert_eq!(call("int(x)").callee, Callee::Name("int".into()));
    assert_eq!(
        call("__torch__.a.F(x, )").callee,
        Callee::Qualified("__torch__.a.F".into())
    );
    let forward = call("(getattr(l, \"0\")).forward1(x, )");
    let Callee::Method(object, name) = forward.callee else {
        panic!("not a method");
    };
    assert_eq!(name, "forward1");
    assert!(matches!(object.kind, AstExprKind::Attribute(_, name) if name == "0"));
}

#[test]
fn typed_expressions() {
    let list = |ty| TypeExpr::List(Box::new(ty));
    assert!(
        matches!(expression("annotate(List[int], [])").unwrap(), AstExprKind::Annotate(ty, _) if ty == list(TypeExpr::Int))
    );
    assert!(matches!(
        expression("unchecked_cast(Tensor, x)").unwrap(),
        AstExprKind::UncheckedCast(TypeExpr::Tensor, _)
    ));
    assert_eq!(
        expression("uninitialized(int)").unwrap(),
        AstExprKind::Uninitialized(TypeExpr::Int)
    );
    assert!(
        matches!(expression("isinstance(x, (int, str))").unwrap(), AstExprKind::IsInstance(_, types) if types.len() == 2)
    );
    assert!(matches!(
        expression("(torch.size(x))[-1]").unwrap(),
        AstExprKind::Subscript(..)
    ));
}

#[test]
fn statements() {
    use StmtKind::*;
    assert!(matches!(&body("  a, b, = x\n")[..], [Unpack { names, .. }] if names.len() == 2));
    assert!(matches!(&body("  a, = x\n")[..], [Unpack { names, .. }] if names.len() == 1));
    assert!(
        matches!(&body("  a, b = x, y\n")[..], [AssignAll { values, .. }] if values.len() == 2)
    );
    assert!(matches!(
        &body("  a : Optional[int] = 1\n")[..],
        [Assign { ty: Some(_), .. }]
    ));
    assert!(matches!(&body("  self.a = 1\n")[..], [SetAttribute { .. }]));
    assert!(
        matches!(&body("  if a:\n    pass\n  else:\n    b = 1\n    c = 2\n")[..],
        [If { then, otherwise, .. }] if then.len() == 1 && otherwise.len() == 2)
    );
    assert!(matches!(
        &body(
            "  while a:\n    pass\n  for i in range(torch.len(x)):\n    pass\n  with a:\n    pass\n"
        )[..],
        [While { .. }, For { .. }, With { .. }]
    ));
    assert!(matches!(
        &body("  def g():\n    return x\n  y = fork(g)\n  print(y)\n  return (x, y)\n")[..],
        [Define(_), Assign { .. }, Evaluate(_), Return(_)]
    ));
}

#[test]
fn classes() {
    let text = "class M(Module):\n  __parameters__ = [\"w\", ]\n  __buffers__ = []\n  w : Tensor\n  __annotations__[\"0\"] = __torch__.<x>.N\n  k : Final[int] = 4\n  def forward(self: __torch__.m.M,\n    y: Tensor,\n    z: Optional[int]=None) -> Tensor:\n    return y\nclass P(NamedTuple):\n  a : Tensor\nclass E(Enum):\n  RED = 1\nclass B():\n  n : int\ndef f() -> NoneType:\n  return None\n";
    let file = parse_file(
        "code/__torch__/m.py",
        "__torch__.m",
        text,
        &Budget::default(),
    )
    .unwrap();
    let bases: Vec<_> = file.classes.iter().map(|class| class.base).collect();
    assert_eq!(
        bases,
        [
            BaseClass::Module,
            BaseClass::NamedTuple,
            BaseClass::Enum,
            BaseClass::None
        ]
    );
    let module = &file.classes[0];
    assert_eq!(
        (module.name.as_str(), module.parameters.as_slice()),
        ("__torch__.m.M", &["w".to_owned()][..])
    );
    assert_eq!(
        module.attribute("0"),
        Some(&TypeExpr::Class("__torch__.<x>.N".into()))
    );
    assert_eq!(
        module.constant("k").unwrap().value.kind,
        AstExprKind::Int(4)
    );
    let forward = module.method("forward").unwrap();
    assert_eq!(forward.parameters.len(), 3);
    assert!(text[forward.offset..].starts_with("def forward"));
    assert!(text[forward.body[0].offset..].starts_with("return y"));
    assert_eq!(file.functions[0].name, "__torch__.m.f");
    assert_eq!(
        file.classes[2].constant("RED").unwrap().value.kind,
        AstExprKind::Int(1)
    );
}

#[test]
fn types_round_trip() {
    for text in [
        "Dict[str, List[Optional[Tensor]]]",
        "Tuple[()]",
        "Tuple[int, float, bool]",
        "Union[int, NoneType]",
        "Future[Any]",
        "__torch__.a.___torch_mangle_1.B",
        "Generator",
    ] {
        assert_eq!(parse_type(text).unwrap().to_string(), text);
    }
    for text in [
        "",
        "List[]",
        "Dict[int]",
        "List[int] int",
        "int]",
        "Tuple[(]",
    ] {
        assert!(parse_type(text).is_err(), "{text}");
    }
}

#[test]
fn errors_say_where_and_what() {
    let error = parse_file(
        "a.py",
        "m",
        "def f(x):\n  y = torch.add(x\n  return y\n",
        &Budget::default(),
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "expected `,` or `)`, found `return` — at a.py:3:3"
    );
    let error = parse_file(
        "a.py",
        "m",
        "def f(x):\n  a, b = 1, 2, 3\n",
        &Budget::default(),
    )
    .unwrap_err();
    assert_eq!(error.to_string(), "2 names for 3 values — at a.py:2:3");
    for text in [
        "def f(:\n  pass",
        "class A(B):\n  pass\n",
        "x = 1",
        "def f():\n",
        "def f():\npass",
        "def f(x):\n  1 = x\n",
        "def f(x):\n  torch = x\n",
    ] {
        assert!(
            parse_file("a.py", "m", text, &Budget::default()).is_err(),
            "{text}"
        );
    }
}

#[test]
#[cfg_attr(miri, ignore = "thousands of levels take hours")]
fn depth_is_limited() {
    for text in [
        "(".repeat(100_000),
        "[".repeat(100_000),
        "f(".repeat(100_000),
        format!("x{}", "[0]".repeat(100_000)),
    ] {
        let error = expression(&text).unwrap_err();
        assert!(
            error.message().contains("nested more than 256 deep"),
            "{error}"
        );
    }
    let chains = (0..100).fold("x".to_owned(), |inner, _| {
        format!("[{inner}]{}", "[0]".repeat(100))
    });
    let error = expression(&chains).unwrap_err();
    assert!(
        error.message().contains("nested more than 256 deep"),
        "{error}"
    );
    assert!(parse_type(&"List[".repeat(100_000)).is_err());
    let blocks: String = (0..2000)
        .map(|depth| format!("{:depth$}if x:\n", ""))
        .collect();
    assert!(
        parse_file(
            "a.py",
            "m",
            &format!("def f(x):\n{}", blocks.replace('\n', "\n ")),
            &Budget::default()
        )
        .is_err()
    );
}

/// Statements that PyTorch's printer writes for classes: `__annotations__ = []`, hooks, interfaces.
#[test]
fn members_of_classes() {
    let text = "class P(Module):\n  __parameters__ = [\"0\", ]\n  __buffers__ = []\n  __forward_pre_hooks__ = [\"a\", \"b\", ]\n  __forward_hooks__ = [\"c\", ]\n  __annotations__ = []\n  __annotations__[\"0\"] = Tensor\n  __annotations__[\"1.5 x\"] = RRef[Tensor]\nclass I(ModuleInterface):\n  def forward(self, x: Tensor, y: SymInt) -> Tensor:\n    pass\nclass J(Interface):\n  def area(self) -> int:\n    pass\n";
    let file = parse_file("t.py", "__torch__", text, &Budget::default()).unwrap();
    let [list, module, plain] = file.classes.as_slice() else {
        panic!("{file:?}");
    };
    assert_eq!(list.attribute("0"), Some(&TypeExpr::Tensor));
    assert_eq!(
        list.attribute("1.5 x"),
        Some(&TypeExpr::Other("RRef[Tensor]".into()))
    );
    assert_eq!((list.hooks.pre.len(), list.hooks.post.len()), (2, 1));
    assert_eq!(
        (module.base, plain.base),
        (BaseClass::Interface, BaseClass::Interface)
    );
    assert_eq!(
        module.method("forward").unwrap().parameters[2].ty,
        TypeExpr::Int
    );
}

#[test]
fn context_managers_have_names() {
    let statements = body("  with a as b:\n    with c:\n      pass\n");
    let [StmtKind::With { name, body, .. }] = statements.as_slice() else {
        panic!("{statements:?}");
    };
    assert_eq!(name.as_deref(), Some("b"));
    assert!(matches!(&body[0].kind, StmtKind::With { name: None, .. }));
}

#[test]
fn slices_of_tuples() {
    let sliced = expression("(x)[1:3]").unwrap();
    assert!(
        matches!(sliced, AstExprKind::TupleSlice(_, 1, 3)),
        "{sliced:?}"
    );
    assert!(expression("x[a:3]").is_err());
    assert!(expression("x[1:]").is_err());
}

#[test]
fn complex_literals() {
    let infinity = f64::INFINITY;
    for (text, real, imaginary) in [
        ("1.5-2.j", 1.5, -2.0),
        ("-0.5+1e-07j", -0.5, 1e-7),
        ("3+4j", 3.0, 4.0),
        ("-inf+infj", -infinity, infinity),
        ("inf-infj", infinity, -infinity),
    ] {
        assert_eq!(
            expression(text).unwrap(),
            AstExprKind::Complex(real, imaginary)
        );
    }
    let AstExprKind::Complex(real, imaginary) = expression("nan-nanj").unwrap() else {
        panic!("not complex");
    };
    assert!(real.is_nan() && imaginary.is_nan());
    assert!(expression("1.5-x").is_err());
}
