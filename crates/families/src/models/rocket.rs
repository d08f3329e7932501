use super::{Model, Predictions};
use crate::losses::{Extras, mean_of_rows, root_of_sum, unweighted_mean};
use crate::modules::optional_mlp;
use rewire_features::Problems;
use rewire_graph::{Mode, Tensor};
use rewire_hstu::modules::{MlpConfig, linear};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RocketLaunching {
    #[serde(default)]
    share_mlp: Option<MlpConfig>,
    light_mlp: MlpConfig,
    /// The booster branch, which is only computed in training.
    booster_mlp: Option<MlpConfig>,
    #[serde(default)]
    feature_based_distillation: bool,
    #[serde(default)]
    feature_distillation_function: Distance,
    // Ignored, as in TorchEasyRec.
    #[serde(default, rename = "l2_regularization")]
    _l2_regularization: Value,
}

/// The distance between the hidden layers of both branches.
#[derive(Clone, Copy, Default, Deserialize)]
enum Distance {
    #[default]
    #[serde(rename = "COSINE")]
    Cosine,
    #[serde(rename = "EUCLID", alias = "INNER_PRODUCT")]
    Euclid,
}

/// Weight of the similarity of hidden layers in the loss.
const SIMILARITY: f64 = -0.1;

/// Traces the light branch. In training also traces the booster, which the light branch learns to imitate. The light branch passes no
/// gradient to the shared layers, and the imitation losses pass none to the booster.
pub(super) fn rocket_launching(model: &Model<'_>) -> Result<Predictions, Problems> {
    let config: RocketLaunching = model.read()?;
    let (scope, classes) = (model.scope, model.num_class());
    let x = model.dense(model.first_group()?)?.values;
    let shared = optional_mlp(scope, "share_mlp", config.share_mlp.as_ref(), &x);
    let branch = |name: &str, mlp: &MlpConfig, x: &Tensor| {
        let hidden = scope.module(&format!("{name}_mlp"), |scope| mlp.forward_blocks(scope, x));
        let logits = linear(scope, &format!("{name}_linear"), hidden.last().unwrap_or(x), classes);
        (hidden, logits)
    };
    let (light, light_logits) = branch("light", &config.light_mlp, &shared.detach());
    let mut predictions = model.predict(&light_logits, "_light")?;
    if scope.mode() == Mode::Train {
        let booster = config.booster_mlp.as_ref();
        let booster = booster.ok_or_else(|| model.problem("/booster_mlp", "is needed for training"))?;
        let (booster, booster_logits) = branch("booster", booster, &shared);
        predictions.extend(model.predict(&booster_logits, "_booster")?);
        if let Some(extra) = model.extra {
            if config.feature_based_distillation {
                imitate_hidden(&light, &booster, config.feature_distillation_function, extra);
            }
            let hint = (light_logits - booster_logits.detach()).square().mean(1);
            extra.add("hint_l2_loss".to_owned(), hint.reshape([hint.dim(0)]), unweighted_mean);
        }
    }
    Ok(predictions)
}

/// Adds a loss for each layer of the light branch, comparing it with the first booster layer of the same width, if there is one.
fn imitate_hidden(light: &[Tensor], booster: &[Tensor], distance: Distance, extra: &Extras) {
    let same = |light: &Tensor| booster.iter().find(|booster| booster.width() == light.width());
    let pairs = light.iter().filter_map(|light| Some((light, same(light)?.detach())));
    for (index, (light, booster)) in pairs.enumerate() {
        let name = format!("similarity_{index}");
        let rows = |x: Tensor| x.sum(1).reshape([light.dim(0)]);
        match distance {
            Distance::Cosine => {
                let cosine = rows(light.unit_rows(super::SHORTEST) * booster.unit_rows(super::SHORTEST));
                extra.add(name, cosine * SIMILARITY, mean_of_rows);
            }
            Distance::Euclid => extra.add(name, rows((light - booster).square()), root_of_sum),
        }
    }
}
