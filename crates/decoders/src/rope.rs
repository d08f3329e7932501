//! Rotary position embeddings (Su et al., 2021) with the scalings of Hugging Face.

use crate::ConfigError;
use crate::keys::Keys;
use rewire_graph::{HostTensor, TensorSizeError};
use serde_json::Value;
use std::f64::consts::PI;

/// A rotary position embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// The angle of position 1, for every pair of columns.
    frequencies: Vec<f32>,
    /// Factor applied to cosines and sines.
    gain: f64,
}

impl Rope {
    /// Parses `rope_parameters`, or `rope_theta` and `rope_scaling` of older configurations.
    pub(crate) fn parse(keys: &Keys<'_>, width: usize) -> Result<Self, ConfigError> {
        let parameters = match keys.object("rope_parameters")? {
            Some(parameters) => Some(parameters),
            None => keys.object("rope_scaling")?,
        };
        let theta = parameters.as_ref().map(|keys| keys.float("rope_theta")).transpose()?.flatten();
        let base = theta.or(keys.float("rope_theta")?).unwrap_or(10000.0);
        let longest = keys.size("max_position_embeddings")?;
        let plain: Vec<f64> = (0..width / 2).map(|pair| base.powf(-2.0 * pair as f64 / width as f64)).collect();
        let Some(keys) = parameters else { return Ok(Self::new(plain, 1.0)) };
        keys.only("partial_rotary_factor", "1", |value| value.as_f64() == Some(1.0))?;
        let kind = keys.text("rope_type")?.or(keys.text("type")?).unwrap_or("default");
        let rope = match kind {
            "default" => Self::new(plain, 1.0),
            "linear" => {
                let factor = keys.required("factor", keys.float("factor")?)?;
                Self::new(plain.into_iter().map(|frequency| frequency / factor).collect(), 1.0)
            }
            "llama3" => Self::new(llama3(&keys, plain)?, 1.0),
            "yarn" => {
                let (frequencies, gain) = yarn(&keys, plain, base, longest)?;
                Self::new(frequencies, gain)
            }
            _ => {
                let expected = "default, linear, llama3 or yarn";
                return Err(ConfigError::value("rope_parameters.rope_type", expected, &Value::from(kind)));
            }
        };
        keys.finish()?;
        Ok(rope)
    }

    fn new(frequencies: Vec<f64>, gain: f64) -> Self {
        Self { frequencies: frequencies.into_iter().map(|frequency| frequency as f32).collect(), gain }
    }

    /// Cosines and sines of positions, `[positions, width / 2]` each. Angles are rounded to f32 as in the reference.
    ///
    /// # Errors
    /// [`TensorSizeError`] if their memory cannot be allocated.
    pub fn tables(&self, positions: &[u32]) -> Result<[HostTensor; 2], TensorSizeError> {
        let angles = || {
            let of = |&position: &u32| self.frequencies.iter().map(move |frequency| position as f32 * frequency);
            positions.iter().flat_map(of).map(f64::from)
        };
        let table = |values: Vec<f32>| HostTensor::f32(vec![positions.len(), self.frequencies.len()], &values);
        let cos = angles().map(|angle| (angle.cos() * self.gain) as f32).collect();
        let sin = angles().map(|angle| (angle.sin() * self.gain) as f32).collect();
        Ok([table(cos)?, table(sin)?])
    }
}

/// Llama 3: divides the frequencies of long wavelengths by `factor`, with a smooth transition to unchanged short ones.
fn llama3(keys: &Keys<'_>, plain: Vec<f64>) -> Result<Vec<f64>, ConfigError> {
    let number = |key: &str| keys.required(key, keys.float(key)?);
    let [factor, low, high, longest] = [
        number("factor")?,
        number("low_freq_factor")?,
        number("high_freq_factor")?,
        number("original_max_position_embeddings")?,
    ];
    let scaled = plain.into_iter().map(|frequency| {
        let wavelength = 2.0 * PI / frequency;
        if wavelength > longest / low {
            frequency / factor
        } else if wavelength < longest / high {
            frequency
        } else {
            let share = (longest / wavelength - low) / (high - low);
            (1.0 - share) * frequency / factor + share * frequency
        }
    });
    Ok(scaled.collect())
}

/// YaRN (Peng et al., 2023): the frequencies, and the factor of cosines and sines.
fn yarn(keys: &Keys<'_>, plain: Vec<f64>, base: f64, longest: Option<usize>) -> Result<(Vec<f64>, f64), ConfigError> {
    let factor = keys.required("factor", keys.float("factor")?)?;
    let original = keys.size("original_max_position_embeddings")?.or(longest);
    let original = keys.required("original_max_position_embeddings", original)? as f64;
    let (fast, slow) = (keys.float("beta_fast")?.unwrap_or(32.0), keys.float("beta_slow")?.unwrap_or(1.0));
    let is_whole = keys.flag("truncate")?.unwrap_or(true);
    let magnitude = |scale: f64| if factor > 1.0 { 0.1 * scale * factor.ln() + 1.0 } else { 1.0 };
    let gain = match (keys.float("attention_factor")?, keys.float("mscale")?, keys.float("mscale_all_dim")?) {
        (Some(gain), ..) => gain,
        (None, Some(own), Some(all)) if own != 0.0 && all != 0.0 => magnitude(own) / magnitude(all),
        _ => magnitude(1.0),
    };
    let width = 2.0 * plain.len() as f64;
    let place = |turns: f64| width * (original / (turns * 2.0 * PI)).ln() / (2.0 * base.ln());
    let (first, last) = (place(fast), place(slow));
    let (first, last) = if is_whole { (first.floor(), last.ceil()) } else { (first, last) };
    let (first, last) = (first.max(0.0), last.min(width - 1.0));
    let span = if first == last { 0.001 } else { last - first };
    let scaled = plain.into_iter().enumerate().map(|(pair, frequency)| {
        let share = ((pair as f64 - first) / span).clamp(0.0, 1.0);
        share * frequency / factor + (1.0 - share) * frequency
    });
    Ok((scaled.collect(), gain))
}
