use super::ReplayError;
use crate::modules::{ConfigError, count};
use rewire_graph::{DType, Dim, HostTensor, Scope, Tensor};
use serde::Deserialize;

/// Where a convolution reads, `[h, w]` each.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Window {
    #[serde(default = "one")]
    stride: [usize; 2],
    #[serde(default)]
    padding: [usize; 2],
    #[serde(default = "one")]
    dilation: [usize; 2],
    #[serde(default = "one_group")]
    groups: usize,
}

fn one() -> [usize; 2] {
    [1, 1]
}

fn one_group() -> usize {
    1
}

/// The 2-D cross-correlation of `x` `[N, C, H, W]` with `weight` `[Cout, C / groups, kh, kw]`, as one matrix product a
/// group over the elements that each result reads.
pub(super) fn conv2d(
    scope: &Scope,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    window: &Window,
) -> Result<Tensor, ReplayError> {
    let (Some([channels, height, width]), Some([out, per_group, kh, kw])) = (extents(x, 1), extents(weight, 0)) else {
        let actual = format!("{} and {}", x.ty(), weight.ty());
        return Err(ConfigError::new("conv2d", "of an image and a kernel of 4 dimensions", actual).into());
    };
    window.check()?;
    for extent in [height, width, out, per_group, kh, kw] {
        count("conv2d", extent)?;
    }
    let groups = window.groups;
    if groups == 0 || per_group.checked_mul(groups) != Some(channels) || out % groups != 0 {
        let expected = format!("a divisor of {channels} and {out} that leaves {per_group} channels");
        return Err(ConfigError::new("groups", expected, groups).into());
    }
    let (rows, columns) = (window.taps(0, height, kh)?, window.taps(1, width, kw)?);
    let (oh, ow) = (rows.len(), columns.len());
    let (places, taps) = (oh * ow, kh * kw);
    let read = places_read(scope, &rows, &columns, height, width)?;
    let batch = x.dim(0);
    let pixels = x.reshape(&[batch.clone(), channels.into(), (height * width).into()]).permute(&[2, 0, 1]);
    let zeros = scope.scalar(DType::F32, 0.0).broadcast(&[1.into(), batch.clone(), channels.into()]);
    let patches = scope.concat(&[&pixels, &zeros], 0).gather(&read.reshape(&[places.into(), taps.into()]));
    let by_group: [Dim; 5] = [places.into(), taps.into(), batch.clone(), groups.into(), per_group.into()];
    let patches = patches.reshape(&by_group).permute(&[2, 3, 0, 4, 1]);
    let depth = per_group * taps;
    let patches = patches.reshape(&[batch.clone(), groups.into(), places.into(), depth.into()]);
    let kernel = weight.reshape(&[groups.into(), (out / groups).into(), depth.into()]).permute(&[0, 2, 1]);
    let product = patches.matmul(&kernel).permute(&[0, 1, 3, 2]);
    let image = product.reshape(&[batch, out.into(), oh.into(), ow.into()]);
    Ok(match bias {
        Some(bias) => &image + &bias.reshape(&[out.into(), 1.into(), 1.into()]),
        None => image,
    })
}

/// Constant extents from axis `first` to the fourth.
fn extents<const N: usize>(x: &Tensor, first: usize) -> Option<[usize; N]> {
    let extents: Vec<usize> = (first..x.rank()).map(|axis| x.ty().extent(axis)).collect::<Option<_>>()?;
    if x.rank() == 4 { extents.try_into().ok() } else { None }
}

impl Window {
    fn check(&self) -> Result<(), ConfigError> {
        let named = [("stride", self.stride), ("padding", self.padding), ("dilation", self.dilation)];
        named.iter().flat_map(|(key, pair)| pair.iter().map(move |&n| (key, n))).try_for_each(|(key, n)| count(key, n))
    }

    /// For every place along an axis the entries that the kernel reads there, `None` in the padding.
    fn taps(&self, axis: usize, extent: usize, kernel: usize) -> Result<Vec<Vec<Option<usize>>>, ReplayError> {
        let pick = |pair: &[usize; 2]| if axis == 0 { pair[0] } else { pair[1] };
        let (stride, padding, dilation) = (pick(&self.stride), pick(&self.padding), pick(&self.dilation));
        let reach = dilation * kernel.saturating_sub(1) + 1;
        let padded = extent + 2 * padding;
        if stride == 0 || kernel == 0 || reach > padded {
            let expected = format!("at least 1, with a kernel within {padded}");
            return Err(ConfigError::new("stride", expected, format!("{stride}, with a kernel of {reach}")).into());
        }
        let entry = |place: usize, tap: usize| {
            (place * stride + tap * dilation).checked_sub(padding).filter(|&entry| entry < extent)
        };
        let places = (padded - reach) / stride + 1;
        Ok((0..places).map(|place| (0..kernel).map(|tap| entry(place, tap)).collect()).collect())
    }
}

/// For every place and kernel element the pixel it reads, row major; the one after the last pixel in the padding.
fn places_read(
    scope: &Scope,
    rows: &[Vec<Option<usize>>],
    columns: &[Vec<Option<usize>>],
    height: usize,
    width: usize,
) -> Result<Tensor, ReplayError> {
    let mut read: Vec<f64> = vec![];
    for row_taps in rows {
        for column_taps in columns {
            for row in row_taps {
                for column in column_taps {
                    let pixel = row.zip(*column).map_or(height * width, |(row, column)| row * width + column);
                    read.push(pixel as f64);
                }
            }
        }
    }
    match HostTensor::from_f64(DType::I32, vec![read.len()], &read) {
        Ok(tensor) => Ok(scope.constant(tensor)),
        Err(error) => Err(ConfigError::new("conv2d", "an image that can be indexed", error).into()),
    }
}
