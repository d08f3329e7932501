use super::{count, fires, graph};
use rewire_graph::op::{Permute, Reduce};
use rewire_graph::{DType, Dim, Scope, Tensor};
use rewire_graph_rewrite::rules::{Attempt, Match, Patch, Pattern, Rule, TracedRule, rewrite};

const F32: DType = DType::F32;

#[test]
fn operands_of_commutative_operators_match_in_any_combination() {
    // (x + a) * (x + b), with the shared x on any side of either sum.
    let rule = TracedRule::new(
        "product of sums",
        |p| {
            let x = p.any("x", F32);
            vec![&(&x + &p.any("a", F32)) * &(&p.any("b", F32).tanh() + &x)]
        },
        |r| {
            let (x, a, b) = (r.tensor("x"), r.tensor("a"), r.tensor("b").tanh());
            vec![&(&x.square() + &(&x * &(&a + &b))) + &(&a * &b)]
        },
    )
    .unwrap();
    type Sum = fn(&Tensor, &Tensor) -> Tensor;
    let orders: [Sum; 2] = [|a, b| a + b, |a, b| b + a];
    for first in orders {
        for second in orders {
            for product in [|a: &Tensor, b: &Tensor| a * b, |a: &Tensor, b: &Tensor| b * a] {
                let graph = graph(|_, x, y| vec![product(&first(x, y), &second(x, &y.tanh()))]);
                assert_eq!(fires(&graph, &[&rule]).1, 1, "{}", graph.text());
            }
        }
    }
    let other = graph(|_, x, y| vec![&(x + y) * &(y + &x.sin())]);
    assert_eq!(fires(&other, &[&rule]).1, 0);
}

#[test]
fn a_capture_used_twice_is_one_value() {
    let rule = TracedRule::new(
        "difference from itself",
        |p| vec![&p.any("x", F32) - &p.any("x", F32)],
        |r| vec![&r.tensor("x") * 0.0],
    )
    .unwrap();
    assert_eq!(fires(&graph(|_, x, _| vec![x - x]), &[&rule]).1, 1);
    assert_eq!(fires(&graph(|_, x, y| vec![x - y]), &[&rule]).1, 0);
}

#[test]
fn constants_are_captured_and_conditions_choose_among_them() {
    let rule = TracedRule::new(
        "power of two",
        |p| vec![&p.any("x", F32) / &p.number("c")],
        |r| vec![&r.tensor("x") * (1.0 / r.matched().number("c").unwrap())],
    )
    .unwrap()
    .when("the divisor is not a power of two", |matched| matched.number("c").is_some_and(|c| c.log2().fract() == 0.0));
    let (rewritten, fired) = fires(&graph(|_, x, y| vec![x / 4.0, y / 3.0, x / y]), &[&rule]);
    assert_eq!((fired, count(&rewritten, "div")), (1, 2));
}

fn linear(scope: &Scope, name: &str, x: &Tensor, bias: bool) -> Tensor {
    let weight = scope.parameter(&format!("{name}.weight"), F32, &[6.into(), 6.into()]);
    let bias = bias.then(|| scope.parameter(&format!("{name}.bias"), F32, &[6.into()]));
    x.linear(&weight, bias.as_ref())
}

/// `relu(x W^T + b)`, with an optional bias and an optional factor, becomes `relu` of a product with the bias in
/// `addmm` order.
fn layer() -> TracedRule {
    TracedRule::new(
        "layer",
        |p| {
            let (rows, width, out) = (p.size("rows"), p.size("width"), p.size("out"));
            let x = p.tensor("x", F32, &[rows, width.clone()]);
            let weight = p.tensor("weight", F32, &[out.clone(), width]);
            let product = x.matmul(&weight.transpose(0, 1));
            let sum = p.optional(&product, |product| product + &p.tensor("bias", F32, std::slice::from_ref(&out)));
            vec![p.optional(&sum, |sum| sum * &p.number("scale")).relu()]
        },
        |r| {
            let product = r.tensor("x").matmul(&r.tensor("weight").permute(&[1, 0]));
            let sum = r.find("bias").map_or_else(|| product.clone(), |bias| &bias + &product);
            let scaled = r.matched().number("scale").map_or_else(|| sum.clone(), |scale| &sum * scale);
            vec![scaled.maximum(&r.scope().scalar(F32, 0.0))]
        },
    )
    .unwrap()
}

#[test]
fn a_function_of_the_match_may_decline() {
    let rule = TracedRule::with_patch(
        "narrow sum",
        |p| vec![&p.any("x", F32) + &p.any("y", F32)],
        |matched: &Match| {
            if matched.ty("x").and_then(|ty| ty.width()) != Some(6) || !matched.is_read_once("x") {
                return Ok(None);
            }
            Patch::trace(matched, |r| vec![&r.tensor("x") - &-&r.tensor("y")]).map(Some)
        },
    )
    .unwrap();
    let graph = graph(|_, x, y| vec![&x.tanh() + y, &y.sum(1) + &y.max(1)]);
    let (rewritten, fired) = fires(&graph, &[&rule]);
    assert_eq!((fired, count(&rewritten, "sub"), count(&rewritten, "add")), (1, 1, 1));
}

#[test]
fn optional_parts_may_be_there_or_not() {
    for (bias, scale) in [(false, false), (false, true), (true, false), (true, true)] {
        let graph = graph(|scope, x, _| {
            let y = linear(scope, "a", x, bias);
            vec![if scale { (&y * 0.5).relu() } else { y.relu() }]
        });
        let (rewritten, fired) = fires(&graph, &[&layer()]);
        assert_eq!((fired, count(&rewritten, "relu")), (1, 0), "{bias} {scale}");
        assert_eq!(count(&rewritten, "add"), usize::from(bias));
    }
}

#[test]
fn shapes_have_to_agree() {
    let rule = TracedRule::new(
        "square product",
        |p| {
            let n = p.size("n");
            let a = p.tensor("a", F32, &[p.size("rows"), n.clone()]);
            vec![a.matmul(&p.tensor("b", F32, &[n.clone(), n]))]
        },
        |r| vec![&r.tensor("a").matmul(&r.tensor("b")) * 1.0],
    )
    .unwrap();
    let apply = |out: usize| {
        let graph = graph(|scope, x, _| vec![x.matmul(&scope.parameter("w", F32, &[6.into(), out.into()]))]);
        let root = graph.outputs()[0].1.node;
        matches!(rule.apply(&graph, root).unwrap(), Attempt::Found(_))
    };
    assert!(apply(6) && !apply(5));
}

#[test]
fn sizes_among_attributes_stand_for_others() {
    let rule = TracedRule::new(
        "split and join",
        |p| {
            let rows = p.size("rows");
            let (heads, inner) = (p.size("heads"), p.size("inner"));
            let x = p.tensor("x", F32, &[rows.clone(), heads.clone(), inner.clone()]);
            vec![x.sum(2).broadcast(&[rows, heads, inner])]
        },
        |r| vec![(&r.tensor("x") * 0.0).broadcast(r.tensor("x").shape()).sum(2).broadcast(r.tensor("x").shape())],
    )
    .unwrap();
    let graph = graph(|_, x, _| {
        let parts = x.reshape(&[x.dim(0), 2.into(), 3.into()]);
        vec![parts.sum(2).broadcast(parts.shape()), parts.sum(2).broadcast(&[4.into(), x.dim(0), 2.into(), 5.into()])]
    });
    let found: Vec<bool> = graph
        .outputs()
        .iter()
        .map(|(_, value)| matches!(rule.apply(&graph, value.node).unwrap(), Attempt::Found(_)))
        .collect();
    assert_eq!(found, [true, false]);
}

#[test]
fn an_operator_is_captured_with_its_attributes() {
    let rule = TracedRule::new(
        "sum over exchanged axes",
        |p| vec![p.operator::<Reduce>("sum", &[&p.operator::<Permute>("order", &[&p.any("x", F32)])])],
        |r| {
            let (order, sum) = (r.matched().op::<Permute>("order").unwrap(), r.matched().op::<Reduce>("sum").unwrap());
            vec![r.tensor("x").sum(order.axes[sum.axis]).permute(&order.axes)]
        },
    )
    .unwrap()
    .when("it is not a sum", |matched| {
        matched.op::<Reduce>("sum").is_some_and(|r| r.op == rewire_graph::op::ReduceOp::Sum)
    });
    let graph = graph(|_, x, _| {
        let exchanged = x.permute(&[1, 0]);
        vec![exchanged.sum(0), exchanged.max(1)]
    });
    assert_eq!(fires(&graph, &[&rule]).1, 1);
}

/// `x_{l+1} = x_0 * (W_l x_l + b_l) + x_l` any number of times.
fn crosses(layers: usize) -> rewire_graph::Graph {
    graph(|scope, x, _| {
        vec![(0..layers).fold(x.clone(), |y, n| &(x * &linear(scope, &format!("layers.{n}"), &y, true)) + &y).tanh()]
    })
}

#[test]
fn repeated_parts_match_as_often_as_they_are_there() {
    let counting = TracedRule::new(
        "crosses",
        |p| {
            let width = p.size("width");
            let x = p.tensor("x", F32, &[p.size("rows"), width.clone()]);
            vec![
                p.repeat("layer", &x, |p, y| {
                    let weight = p.tensor("weight", F32, &[width.clone(), width.clone()]);
                    let bias = p.tensor("bias", F32, std::slice::from_ref(&width));
                    &(&x * &y.linear(&weight, Some(&bias))) + y
                })
                .tanh(),
            ]
        },
        |r| {
            let x = r.tensor("x");
            let layer = |y: Tensor, n: usize| {
                let [weight, bias] = ["weight", "bias"].map(|name| r.tensor(&format!("layer.{n}.{name}")));
                &y + &(&x * &(&bias + &y.matmul(&weight.transpose(0, 1))))
            };
            let y = (0..r.matched().repetitions("layer")).fold(x.clone(), layer);
            vec![&(&y.tanh() * 0.5) * 2.0]
        },
    )
    .unwrap();
    for layers in [1, 2, 5] {
        let graph = crosses(layers);
        let root = graph.outputs()[0].1.node;
        assert!(matches!(counting.apply(&graph, root).unwrap(), Attempt::Found(_)), "{layers}");
        let Attempt::Found(patch) = counting.apply(&graph, root).unwrap() else { return };
        let mut patched = graph.clone();
        patch.land(&mut patched).unwrap();
        super::close(&patched, &graph);
    }
    let root = |graph: &rewire_graph::Graph| graph.outputs()[0].1.node;
    let none = crosses(0);
    assert!(!matches!(counting.apply(&none, root(&none)).unwrap(), Attempt::Found(_)));
}

/// Two linear layers with the same input become one linear layer and a split.
fn siblings() -> TracedRule {
    TracedRule::new(
        "siblings",
        |p| {
            let width = p.size("width");
            let x = p.tensor("x", F32, &[p.size("rows"), width.clone()]);
            let weight = |name: &str| p.tensor(name, F32, &[p.size("out"), width.clone()]);
            vec![x.linear(&weight("a"), None), x.linear(&weight("b"), None)]
        },
        |r| {
            let (a, b) = (r.tensor("a"), r.tensor("b"));
            let joined = r.scope().concat(&[&a, &b], 0);
            let product = r.tensor("x").linear(&joined, None);
            let out = [&a, &b].map(|weight| weight.ty().extent(0).unwrap());
            product.split_columns(&out)
        },
    )
    .unwrap()
}

#[test]
fn several_results_are_replaced_together() {
    let graph = graph(|scope, x, y| {
        vec![linear(scope, "a", x, false).tanh(), linear(scope, "b", y, false), linear(scope, "c", x, false)]
    });
    let (rewritten, fired) = fires(&graph, &[&siblings()]);
    assert_eq!((fired, count(&rewritten, "matmul")), (1, 2));
}

#[test]
fn a_result_that_waits_for_another_is_refused() {
    // The second layer's weight is computed from the first layer's result.
    let graph = graph(|scope, x, _| {
        let first = linear(scope, "a", x, false);
        let weight = &scope.parameter("w", F32, &[6.into(), 6.into()]) + &first.sum(0);
        vec![x.linear(&weight, None)]
    });
    let (rewritten, fired) = rewrite(&graph, &[&siblings()]).unwrap();
    assert!(fired.is_empty());
    assert_eq!(rewritten.text(), graph.text());
}

#[test]
fn a_pattern_matches_what_simplification_leaves() {
    // A pattern written with sigmoid matches silu as well as sigmoid.
    let rule = TracedRule::new(
        "gate",
        |p| {
            let (x, y) = (p.any("x", F32), p.any("y", F32));
            vec![&y * &(&x * &x.sigmoid())]
        },
        |r| vec![&r.tensor("x").silu() * &(&r.tensor("y") + 0.0)],
    )
    .unwrap();
    let attempt = |graph: &rewire_graph::Graph| {
        matches!(rule.apply(graph, graph.outputs()[0].1.node).unwrap(), Attempt::Found(_))
    };
    assert!(attempt(&graph(|_, x, y| vec![y * &x.silu()])));
    assert!(attempt(&graph(|_, x, y| vec![&(&x.sigmoid() * x) * y])));
    assert!(!attempt(&graph(|_, x, y| vec![&(&x.sigmoid() * y) * y])));
}

#[test]
fn near_misses_say_what_is_missing() {
    let near = |graph: &rewire_graph::Graph, rule: &dyn Rule| match rule.apply(graph, graph.outputs()[0].1.node) {
        Ok(Attempt::Near(reason)) => reason,
        other => format!("{other:?}"),
    };
    let silu = TracedRule::new(
        "silu",
        |p| vec![&p.any("x", F32) * &p.any("x", F32).sigmoid()],
        |r| vec![r.tensor("x").silu()],
    )
    .unwrap();
    let reason = near(&graph(|_, x, y| vec![x * &y.sigmoid()]), &silu);
    assert!(reason.contains("must be one value"), "{reason}");
    let strict = silu
        .when("it is too narrow", |matched| matched.ty("x").and_then(|ty| ty.width()).is_some_and(|width| width > 100));
    let reason = near(&graph(|_, x, _| vec![x * &x.sigmoid()]), &strict);
    assert_eq!(reason, "it is too narrow");
    assert!(near(&graph(|_, x, y| vec![x * y]), &strict).contains("Nothing"));
}

#[test]
fn hopeless_patterns_come_to_an_end() {
    let rule = TracedRule::new(
        "sum",
        |p| vec![p.repeat("term", &p.number("start"), |p, sum| sum + &p.any("x", F32)).tanh()],
        |r| vec![r.tensor("term.0.x").tanh()],
    )
    .unwrap();
    let graph = graph(|_, x, y| {
        let mut level =
            vec![x.clone(); 32].into_iter().enumerate().map(|(n, x)| &x * (n as f64 + 2.0)).collect::<Vec<_>>();
        while level.len() > 1 {
            level = level.chunks(2).map(|pair| &pair[0] + &pair[1]).collect();
        }
        vec![(&level[0] + y).tanh()]
    });
    assert!(!matches!(rule.apply(&graph, graph.outputs()[0].1.node).unwrap(), Attempt::Found(_)));
}

#[test]
fn what_cannot_be_a_pattern_is_an_error() {
    let new = |pattern: fn(&rewire_graph_rewrite::rules::PatternScope) -> Vec<Tensor>| {
        TracedRule::new("rule", pattern, |_| vec![]).map(drop).unwrap_err().to_string()
    };
    assert!(new(|_| vec![]).contains("pattern"));
    assert!(new(|p| vec![p.any("x", F32).silu(), p.any("y", F32).silu()]).contains("result 1"));
    assert!(new(|p| vec![p.repeat("r", &p.any("x", F32), |_, x| x.clone())]).contains("repeat"));
    let shape = |n: usize| [Dim::from(n), 4.into()];
    let error = TracedRule::new(
        "rule",
        |p| vec![p.tensor("a", F32, &shape(3)).matmul(&p.tensor("b", F32, &shape(5)))],
        |_| vec![],
    );
    assert!(error.map(drop).unwrap_err().to_string().contains("matmul"));
}

#[test]
fn repetitions_are_found_in_chains_of_thousands_of_nodes() {
    const LENGTH: usize = 5_000;
    let whole = graph(|_, x, _| vec![(0..LENGTH).fold(x.sigmoid(), |y, _| y.relu()).tanh()]);
    let counting =
        Pattern::trace(|p| vec![p.repeat("relus", &p.any("x", F32).sigmoid(), |_, y| y.relu()).tanh()]).unwrap();
    let found = counting.find(&whole, whole.outputs()[0].1.node, &|_| Ok(())).unwrap();
    assert_eq!(found.repetitions("relus"), LENGTH);

    let once = TracedRule::new(
        "relu once",
        |p| vec![p.repeat("relus", &p.any("x", F32), |_, y| y.relu())],
        |r| vec![r.tensor("x").relu()],
    )
    .unwrap();
    let (rewritten, fired) = fires(&whole, &[&once]);
    assert_eq!((fired, count(&rewritten, "relu")), (LENGTH - 1, 1));
}
