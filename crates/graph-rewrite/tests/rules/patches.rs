use super::{close, count, graph};
use rewire_graph::{DType, Graph, Tensor, Value};
use rewire_graph_rewrite::passes::{FoldAffine, Pipeline, Simplify};
use rewire_graph_rewrite::rules::{Attempt, Match, Patch, Replacement, Rule, TracedRule, rewrite};
use rewire_graph_rewrite::{RewriteError, optimize};
use std::collections::BTreeMap;

fn silu(replacement: impl Fn(&Replacement) -> Vec<Tensor> + Send + Sync + 'static) -> TracedRule {
    TracedRule::new(
        "my silu",
        |p| {
            let x = p.any("x", DType::F32);
            vec![&x * &x.sigmoid()]
        },
        replacement,
    )
    .unwrap()
}

fn model() -> Graph {
    graph(|scope, x, y| scope.module("layers.3", |_| vec![&(x * &x.sigmoid()) + y]))
}

#[test]
fn errors_name_the_rule_the_operator_and_its_module() {
    let cases: [(TracedRule, &str); 5] = [
        (silu(|r| vec![r.tensor("x").sum(1)]), "the replacement has the type f32[s0, 1]"),
        (silu(|_| vec![]), "the replacement has 0 results"),
        (silu(|r| vec![r.tensor("z").silu()]), "`z` must be one of the captures x"),
        (silu(|r| vec![r.tensor("x").matmul(&r.tensor("x"))]), "matmul"),
        (silu(|r| vec![r.scope().input("other", DType::F32, r.tensor("x").shape())]), "`other`"),
    ];
    for (rule, message) in cases {
        let error = rewrite(&model(), &[&rule]).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, RewriteError::Rule { .. }), "{text}");
        for part in ["`my silu`", "mul %", "`layers.3`", message] {
            assert!(text.contains(part), "{text} without {part}");
        }
    }
}

#[test]
fn a_rejected_patch_leaves_the_graph_as_it_was() {
    let before = model();
    let rule = silu(|r| vec![r.scope().input("other", DType::F32, r.tensor("x").shape()).silu()]);
    let mut after = before.clone();
    for id in before.ids() {
        if let Attempt::Found(patch) = rule.apply(&before, id).unwrap() {
            assert!(patch.land(&mut after).is_err());
        }
    }
    assert_eq!(after.text(), before.text());
}

#[test]
fn what_others_read_stays() {
    let graph = graph(|_, x, _| {
        let gate = x.sigmoid();
        vec![x * &gate, gate]
    });
    let (rewritten, fired) = rewrite(&graph, &[&silu(|r| vec![r.tensor("x").silu()])]).unwrap();
    assert_eq!((fired.len(), count(&rewritten, "sigmoid"), count(&rewritten, "mul")), (1, 1, 0));
    close(&rewritten, &graph);
}

#[test]
fn checks_stay_though_nobody_reads_what_they_check() {
    let graph = graph(|scope, x, _| vec![x + &scope.counts("counts", &6.into()).cast(DType::F32)]);
    let first =
        TracedRule::new("first", |p| vec![&p.any("x", DType::F32) + &p.any("y", DType::F32)], |r| vec![r.tensor("x")]);
    let (rewritten, fired) = rewrite(&graph, &[&first.unwrap()]).unwrap();
    assert_eq!((fired.len(), count(&rewritten, "cast"), count(&rewritten, "counts")), (1, 0, 1));
}

#[test]
fn rules_that_undo_each_other_are_an_error() {
    let there = silu(|r| vec![r.tensor("x").silu()]);
    let back = TracedRule::new(
        "back",
        |p| vec![p.any("x", DType::F32).silu()],
        |r| vec![&r.tensor("x") * &r.tensor("x").sigmoid()],
    )
    .unwrap();
    let error = rewrite(&model(), &[&there, &back]).unwrap_err();
    assert!(matches!(error, RewriteError::Endless { .. }), "{error}");
}

/// Replaces `x + y` by `y + x`, without a pattern.
struct Exchange;

impl Rule for Exchange {
    fn name(&self) -> &str {
        "exchange"
    }

    fn roots(&self) -> Option<Vec<String>> {
        Some(vec!["sub".to_owned()])
    }

    fn apply(&self, graph: &Graph, root: rewire_graph::NodeId) -> Result<Attempt, rewire_graph::GraphError> {
        let [a, b] = graph.inputs(root)[..] else { return Ok(Attempt::Nothing) };
        let captures = BTreeMap::from([("a".to_owned(), a), ("b".to_owned(), b)]);
        let found = Match::new(graph, vec![Value { node: root, port: 0 }], captures);
        Patch::trace(&found, |r| vec![&-&r.tensor("b") + &r.tensor("a")]).map(Attempt::Found)
    }
}

#[test]
fn a_rule_can_be_any_function_of_a_place() {
    let graph = graph(|_, x, y| vec![&(x - y) - x]);
    let (rewritten, fired) = super::fires(&graph, &[&Exchange]);
    assert_eq!((fired, count(&rewritten, "sub")), (2, 0));
}

#[test]
fn a_replacement_that_waits_for_itself_is_a_near_miss() {
    // The replacement of `exp(x)` reads `y`, and here `y` is computed from `exp(x)`.
    let rule = || {
        TracedRule::new(
            "both",
            |p| {
                let (x, y) = (p.any("x", DType::F32), p.any("y", DType::F32));
                vec![x.exp(), &x * &y]
            },
            |r| {
                let product = &r.tensor("x") * &r.tensor("y");
                vec![&(&product - &product) + &r.tensor("x").exp(), product.abs()]
            },
        )
        .unwrap()
    };
    let waiting = graph(|_, x, _| vec![x * &(&x.exp() + 1.0)]);
    assert!(rewrite(&waiting, &[&rule()]).unwrap().1.is_empty());
    let pipeline = Pipeline::new(vec![Box::new(Simplify::new(vec![Box::new(rule())]))]).explain();
    let (_, report) = pipeline.run(waiting).unwrap();
    let reasons: Vec<&str> = report.passes[0].near_misses.iter().map(|miss| miss.reason.as_str()).collect();
    assert_eq!(reasons, ["the replacement depends on the value it replaces"]);
    assert!(report.passes[0].applications.is_empty());
}

#[test]
fn rules_are_part_of_a_pipeline() {
    let pipeline = || {
        Pipeline::new(vec![Box::new(Simplify::new(vec![
            Box::new(silu(|r| vec![r.tensor("x").silu()])),
            Box::new(Exchange),
        ]))])
    };
    let model = graph(|_, x, y| vec![&(x * &x.sigmoid()) - y]);
    let fired = |pipeline: Pipeline| -> Vec<String> {
        let (_, report) = pipeline.run(model.clone()).unwrap();
        report.passes[0].applications.iter().map(|application| application.rule.clone()).collect()
    };
    assert_eq!(fired(pipeline()), ["my silu", "exchange"]);
    assert_eq!(fired(pipeline().without("my silu").unwrap()), ["exchange"]);
    assert_eq!(fired(pipeline().only("my silu").unwrap()), ["my silu"]);
    assert_eq!(fired(pipeline().limit(1)), ["my silu"]);
    let error = pipeline().without("nonsense").map(drop).unwrap_err().to_string();
    assert!(error.contains("`nonsense`") && error.contains("exchange"), "{error}");
}

#[test]
fn a_report_tells_what_fired_and_what_nearly_did() {
    let graph = graph(|scope, x, y| scope.module("gate", |_| vec![x * &x.sigmoid(), x * &y.sigmoid()]));
    let (_, report) = Pipeline::default().explain().run(graph).unwrap();
    let text = report.to_string();
    assert!(text.contains("silu: mul %") && text.contains("in gate"), "{text}");
    assert!(text.contains("silu: not mul %") && text.contains("must be one value"), "{text}");
}

#[test]
fn rewriting_twice_is_rewriting_once_and_always_the_same() {
    let model = graph(|scope, x, y| {
        let weight = scope.parameter("w", DType::F32, &[6.into(), 6.into()]);
        let z = &(&(x * &x.sigmoid()) * 1.0) + y;
        vec![z.softmax(1).linear(&weight, None), -&-&z]
    });
    let simplify = || Pipeline::default().up_to(4);
    let (once, _) = simplify().run(model.clone()).unwrap();
    let (twice, report) = simplify().run(once.clone()).unwrap();
    assert_eq!(once.text(), twice.text(), "{report}");
    assert!(report.passes.iter().all(|pass| pass.applications.is_empty()), "{report}");
    let texts: Vec<String> = (0..3).map(|_| optimize(model.clone()).unwrap().0.text()).collect();
    assert!(texts.iter().all(|text| *text == texts[0]));
}

#[test]
fn a_scale_of_flipped_columns_is_not_folded_into_the_weight() {
    for flipped in [false, true] {
        let graph = graph(|scope, x, _| {
            let product = x.matmul(&scope.parameter("weight", DType::F32, &[6.into(), 5.into()]));
            let product = if flipped { product.flip(1) } else { product };
            vec![&product * &scope.parameter("scale", DType::F32, &[5.into()])]
        });
        let (folded, report) = Pipeline::new(vec![Box::new(FoldAffine)]).run(graph.clone()).unwrap();
        close(&folded, &graph);
        assert_eq!(report.passes[0].applications.len(), usize::from(!flipped));
    }
}
