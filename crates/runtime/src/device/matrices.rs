use super::elements::{self, MatrixExtension};
use crate::{Gpu, GpuError};
use rewire_graph_rewrite::device::Target;
use serde::Serialize;
use std::fmt::{self, Display, Formatter};
use std::sync::{Arc, OnceLock};
use strum::EnumString;

/// f16 matmul tiers of a device. Each tier computes the same as the one before, faster.
///
/// ```
/// use rewire_runtime::MatrixTier;
/// assert!(MatrixTier::Wgsl < MatrixTier::Spirv);
/// assert_eq!("spirv".parse(), Ok(MatrixTier::Spirv));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::Display, EnumString)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", parse_err_ty = ParseMatrixTierError, parse_err_fn = unknown)]
pub enum MatrixTier {
    /// Scalar multiply-adds.
    None,
    /// With WGSL's cooperative matrices.
    Wgsl,
    /// With operations on their elements in registers, and with workgroup-scope matrices of
    /// `VK_NV_cooperative_matrix2`.
    Spirv,
}

impl MatrixTier {
    /// A target limited to kernels of this tier.
    pub(super) fn limited(self, target: &Target) -> Target {
        Target {
            matrix: if self == Self::None { 0 } else { target.matrix },
            half_sums: target.half_sums && self > Self::None,
            matrix_elements: target.matrix_elements && self == Self::Spirv,
            workgroup_matrices: if self == Self::Spirv { target.workgroup_matrices } else { 0 },
            integers: target.integers && self == Self::Spirv,
            multiprocessors: if self == Self::Spirv { target.multiprocessors } else { 0 },
            ..target.clone()
        }
    }
}

/// The string is not the name of a [`MatrixTier`].
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown matrix tier `{0}`: expected none, wgsl or spirv")]
pub struct ParseMatrixTierError(String);

fn unknown(text: &str) -> ParseMatrixTierError {
    ParseMatrixTierError(text.to_owned())
}

/// Why kernels do not use a higher tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MatrixReason {
    /// No higher tier exists.
    Highest,
    /// The adapter has no square matrices of 8 or 16 f16 elements with `f32` accumulators.
    NoMatrices,
    /// Shaders have no f16.
    NoHalves,
    /// Shaders lack subgroup operations with barriers.
    NoSubgroups,
    /// Subgroup sizes are unknown.
    UnknownSubgroups,
    /// The device was opened without `EXPERIMENTAL_COOPERATIVE_MATRIX`, or [`Gpu::with_matrices_of`](crate::Gpu::with_matrices_of) was not
    /// called.
    NotOpened,
    /// The driver lacks `VK_NV_cooperative_matrix2`, or parts of it that kernels use.
    NoExtension,
    /// The device was opened without the extension: not by [`Gpu::request_device`](crate::Gpu::request_device).
    NotOpenedWithExtension,
    /// The library was built without its feature `spirv`, or for a system without Vulkan.
    NotBuilt,
    /// The self-test computed wrong results.
    WrongResults,
    /// The app requested a lower tier.
    Limited,
}

impl Display for MatrixReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Highest => "no higher tier exists",
            Self::NoMatrices => "the adapter has no cooperative matrices of f16 with sums of f32",
            Self::NoHalves => "its shaders have no f16, which kernels of cooperative matrices need",
            Self::NoSubgroups => {
                "its shaders have no subgroups with barriers, which kernels of cooperative matrices need"
            }
            Self::UnknownSubgroups => {
                "sizes of its subgroups are not known, among which kernels divide cooperative matrices"
            }
            Self::NotOpened => "the device was opened without cooperative matrices",
            Self::NoExtension => "the driver has no VK_NV_cooperative_matrix2",
            Self::NotOpenedWithExtension => {
                "the device was opened without VK_NV_cooperative_matrix2: Gpu::request_device opens it with that"
            }
            Self::NotBuilt => "the library was built without its feature `spirv`, or for a system without Vulkan",
            Self::WrongResults => "results of its self-test were wrong",
            Self::Limited => "a lower tier was requested",
        })
    }
}

/// The tier of kernels, before the self-test that precedes the first use of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Matrices {
    /// The tier.
    pub tier: MatrixTier,
    /// Why it is not higher.
    pub reason: MatrixReason,
}

impl Matrices {
    pub(super) const NONE: Self = Self { tier: MatrixTier::None, reason: MatrixReason::NoMatrices };

    /// The matrix support of a device that is opened from an adapter, with this target.
    pub(super) fn offered(adapter: &wgpu::Adapter, target: Target) -> (Target, Self) {
        Self::with(adapter, target, elements::offered(adapter))
    }

    /// A target with the matrices of its adapter and the extension of its device.
    fn with(
        adapter: &wgpu::Adapter,
        target: Target,
        extension: Result<MatrixExtension, MatrixReason>,
    ) -> (Target, Self) {
        let (matrix, half_sums) = matrices(adapter);
        let with = Target { matrix, half_sums, ..target.clone() };
        match (unusable(&with), extension) {
            (Some(reason), _) => (target, Self { tier: MatrixTier::None, reason }),
            (None, Err(reason)) => (with, Self { tier: MatrixTier::Wgsl, reason }),
            (None, Ok(MatrixExtension { workgroup, integers, multiprocessors })) => (
                Target { matrix_elements: true, workgroup_matrices: workgroup, integers, multiprocessors, ..with },
                Self { tier: MatrixTier::Spirv, reason: MatrixReason::Highest },
            ),
        }
    }
}

impl Display for Matrices {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.tier, self.reason)
    }
}

/// The cooperative matrices of a device that passed the self-test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RightMatrices {
    pub products: bool,
    /// Products with f16 accumulators.
    pub half_sums: bool,
    /// Operations on elements in registers, and workgroup-scope matrices.
    pub elements: bool,
    /// Products of integers.
    pub integers: bool,
}

impl RightMatrices {
    const NONE: Self = Self { products: false, half_sums: false, elements: false, integers: false };
}

/// Rarely used kernels, tested when the first model with them is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RareKernel {
    /// The backward pass of attention.
    Gradients,
    /// Softmax attention.
    Softmax,
}

/// Results of self-tests.
#[derive(Debug, Default)]
pub(crate) struct TestedMatrices {
    matrices: OnceLock<RightMatrices>,
    gradients: OnceLock<bool>,
    softmax: OnceLock<bool>,
}

impl TestedMatrices {
    fn rare(&self, kernel: RareKernel) -> &OnceLock<bool> {
        match kernel {
            RareKernel::Gradients => &self.gradients,
            RareKernel::Softmax => &self.softmax,
        }
    }
}

/// Why kernels cannot use the cooperative matrices of a target.
fn unusable(target: &Target) -> Option<MatrixReason> {
    let needs = [
        (target.matrix != 0, MatrixReason::NoMatrices),
        (target.f16, MatrixReason::NoHalves),
        (target.subgroups, MatrixReason::NoSubgroups),
        (target.subgroup_size.is_known(), MatrixReason::UnknownSubgroups),
    ];
    needs.into_iter().find(|(is_there, _)| !is_there).map(|(_, reason)| reason)
}

impl Gpu {
    /// Opens a device for an app like `wgpu` does. If the adapter has cooperative matrices and the descriptor requests
    /// `EXPERIMENTAL_COOPERATIVE_MATRIX`, it enables the Vulkan extension with the fastest matrix kernels, if the
    /// driver supports it. Pass the device to [`Gpu::from_device`] and [`Gpu::with_matrices_of`].
    ///
    /// ```no_run
    /// # async fn example(adapter: rewire_runtime::wgpu::Adapter) -> Result<(), rewire_runtime::wgpu::RequestDeviceError> {
    /// use rewire_runtime::{Gpu, wgpu};
    /// let wanted = wgpu::Features::SHADER_F16 | wgpu::Features::SUBGROUP | wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
    /// let descriptor = wgpu::DeviceDescriptor {
    ///     required_features: adapter.features() & wanted,
    ///     required_limits: adapter.limits(),
    ///     // SAFETY: of experimental features, kernels use this one, after a self-test.
    ///     experimental_features: unsafe { wgpu::ExperimentalFeatures::enabled() },
    ///     ..Default::default()
    /// };
    /// let (device, queue) = Gpu::request_device(&adapter, descriptor).await?;
    /// let gpu = Gpu::from_device(device, queue).with_matrices_of(&adapter);
    /// println!("{}", gpu.matrices());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of `wgpu`.
    pub async fn request_device(
        adapter: &wgpu::Adapter,
        descriptor: wgpu::DeviceDescriptor<'_>,
    ) -> Result<(wgpu::Device, wgpu::Queue), wgpu::RequestDeviceError> {
        elements::request_device(adapter, descriptor).await
    }

    /// Uses the cooperative matrices of the adapter from which the device was opened, if the device has
    /// `EXPERIMENTAL_COOPERATIVE_MATRIX`. [`Gpu::open`] does this itself; a device alone does not report matrix sizes.
    #[must_use]
    pub fn with_matrices_of(mut self, adapter: &wgpu::Adapter) -> Self {
        if !self.device.features().contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX) {
            self.reason = match Matrices::offered(adapter, self.target.clone()).1 {
                Matrices { tier: MatrixTier::None, reason } => reason,
                _ => MatrixReason::NotOpened,
            };
            return self;
        }
        let extension = elements::enabled(adapter, &self.device);
        let own;
        (self.target, own) = Matrices::with(adapter, self.target.clone(), extension);
        self.reason = own.reason;
        self
    }

    /// The f16 matmul tier here, and why no faster one.
    pub fn matrices(&self) -> Matrices {
        let right = self.matrices_tested();
        let products = self.target.matrices_of_subgroups().is_some() && right.is_none_or(|right| right.products);
        let elements = self.target.matrix_elements && right.is_none_or(|right| right.elements);
        let tier = match (products, elements) {
            (false, _) => MatrixTier::None,
            (true, false) => MatrixTier::Wgsl,
            (true, true) => MatrixTier::Spirv,
        };
        let wrong = right.is_some_and(|right| match tier {
            MatrixTier::None => !right.products,
            MatrixTier::Wgsl => !right.elements && self.reason == MatrixReason::Highest,
            MatrixTier::Spirv => false,
        });
        Matrices { tier, reason: if wrong { MatrixReason::WrongResults } else { self.reason } }
    }

    /// The same device with kernels of one tier, to compare tiers or to avoid driver errors.
    ///
    /// ```no_run
    /// use rewire_runtime::{Gpu, MatrixTier};
    /// let plain = Gpu::open(None)?.with_matrix_tier(MatrixTier::None)?;
    /// assert_eq!(plain.target().matrix, 0);
    /// # Ok::<(), rewire_runtime::GpuError>(())
    /// ```
    ///
    /// # Errors
    /// [`GpuError::Matrices`] if it supports only a lower one.
    pub fn with_matrix_tier(&self, tier: MatrixTier) -> Result<Self, GpuError> {
        let own = self.matrices();
        if tier > own.tier {
            return Err(GpuError::Matrices { adapter: self.name(), tier, own });
        }
        let reason = if tier < own.tier { MatrixReason::Limited } else { self.reason };
        let mut gpu = self.restricted(&tier.limited(&self.target));
        gpu.reason = reason;
        Ok(gpu)
    }

    /// The device with kernels of a tier, if one is requested.
    ///
    /// # Errors
    /// As [`Gpu::with_matrix_tier`]; it fails without a device, too.
    pub fn with_matrix_tier_if(gpu: Option<Self>, tier: Option<MatrixTier>) -> Result<Option<Self>, GpuError> {
        match (gpu, tier) {
            (Some(gpu), Some(tier)) => gpu.with_matrix_tier(tier).map(Some),
            (None, Some(tier)) if tier > MatrixTier::None => {
                Err(GpuError::Matrices { adapter: "the CPU".to_owned(), tier, own: Matrices::NONE })
            }
            (gpu, _) => Ok(gpu),
        }
    }

    /// The result of the self-test of cooperative matrices; nothing is usable if a rare kernel failed.
    pub(crate) fn matrices_tested(&self) -> Option<RightMatrices> {
        let is_wrong =
            [RareKernel::Gradients, RareKernel::Softmax].map(|kernel| self.rare_tested(kernel) == Some(false));
        let right = self.right.matrices.get().copied();
        right.map(|right| if is_wrong.contains(&true) { RightMatrices::NONE } else { right })
    }

    /// Records the result of the self-test, unless one is recorded already; returns the recorded one.
    pub(crate) fn set_matrices_tested(&self, right: RightMatrices) -> RightMatrices {
        *self.right.matrices.get_or_init(|| right)
    }

    /// Whether a rare kernel passed the self-test; `None` before the test.
    pub(crate) fn rare_tested(&self, kernel: RareKernel) -> Option<bool> {
        self.right.rare(kernel).get().copied()
    }

    /// Like [`Gpu::set_matrices_tested`], for a rare kernel.
    pub(crate) fn set_rare_tested(&self, kernel: RareKernel, is_right: bool) -> bool {
        *self.right.rare(kernel).get_or_init(|| is_right)
    }

    /// The device limited to the matrices that passed the self-test.
    pub(crate) fn with_right_matrices(mut self, right: RightMatrices) -> Self {
        self.target = Target {
            matrix: if right.products { self.target.matrix } else { 0 },
            half_sums: self.target.half_sums && right.half_sums,
            matrix_elements: self.target.matrix_elements && right.elements,
            workgroup_matrices: if right.elements { self.target.workgroup_matrices } else { 0 },
            integers: self.target.integers && right.integers,
            multiprocessors: if right.elements { self.target.multiprocessors } else { 0 },
            ..self.target
        };
        self
    }

    /// The device with all its cooperative matrices enabled, for the self-test itself.
    pub(crate) fn untested(&self) -> Self {
        let right = RightMatrices { products: true, half_sums: true, elements: true, integers: true };
        let mut gpu = self.clone();
        gpu.right = Arc::new(TestedMatrices { matrices: right.into(), gradients: true.into(), softmax: true.into() });
        gpu
    }
}

/// The size of the adapter's square matrices of f16 with `f32` sums, the largest of them, and whether it has them with sums
/// of f16 too; 0 if it has none.
pub(super) fn matrices(adapter: &wgpu::Adapter) -> (u32, bool) {
    use wgpu::CooperativeScalarType::{F16, F32};
    let all = adapter.cooperative_matrix_properties();
    let square = all.iter().filter(|p| p.m_size == p.n_size && p.n_size == p.k_size && [8, 16].contains(&p.m_size));
    let of_f16: Vec<_> = square.filter(|p| p.ab_type == F16).collect();
    let size = of_f16.iter().filter(|p| p.cr_type == F32).map(|p| p.m_size).max().unwrap_or(0);
    (size, of_f16.iter().any(|p| p.m_size == size && p.cr_type == F16))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rewire_graph_rewrite::device::SubgroupSizes;

    /// Targets of drivers of several vendors, and the tiers that kernels use on them.
    #[test]
    fn a_tier_is_one_that_kernels_use() {
        let subgroup_size = SubgroupSizes::fixed(32);
        let nvidia = Target { f16: true, subgroups: true, subgroup_size, matrix: 16, ..Target::BASELINE };
        let sizes = |min, max| Target { subgroup_size: SubgroupSizes { min, max }, ..nvidia.clone() };
        for (name, target, reason) in [
            ("NVIDIA", nvidia.clone(), None),
            ("AMD, subgroups of 32 to 64", sizes(32, 64), None),
            ("Intel, subgroups of 8 to 32, matrices of 8", Target { matrix: 8, ..sizes(8, 32) }, None),
            ("sizes that are not known", sizes(0, 0), Some(MatrixReason::UnknownSubgroups)),
            (
                "no barriers of subgroups",
                Target { subgroups: false, ..nvidia.clone() },
                Some(MatrixReason::NoSubgroups),
            ),
            ("no f16", Target { f16: false, ..nvidia.clone() }, Some(MatrixReason::NoHalves)),
            ("no matrices", Target { matrix: 0, ..nvidia.clone() }, Some(MatrixReason::NoMatrices)),
        ] {
            assert_eq!(unusable(&target), reason, "{name}");
            assert_eq!(target.matrices_of_subgroups().is_none(), reason.is_some(), "{name}");
        }
    }

    #[test]
    fn a_device_without_what_kernels_need_has_no_tier() {
        let Ok(mut gpu) = Gpu::open(None) else { return };
        gpu.target =
            Target { f16: true, subgroups: true, subgroup_size: SubgroupSizes::fixed(32), matrix: 16, ..gpu.target };
        gpu.reason = MatrixReason::NoExtension;
        assert_eq!(gpu.matrices().tier, MatrixTier::Wgsl);
        let without = gpu.restricted(&Target { f16: false, ..gpu.target().clone() });
        assert_eq!(without.matrices(), Matrices { tier: MatrixTier::None, reason: MatrixReason::Limited });
        assert!(without.with_matrix_tier(MatrixTier::Wgsl).is_err());
    }

    #[test]
    fn a_wrong_rare_kernel_turns_all_matrices_off() {
        let Ok(mut gpu) = Gpu::open(None) else { return };
        gpu.target =
            Target { f16: true, subgroups: true, subgroup_size: SubgroupSizes::fixed(32), matrix: 16, ..gpu.target };
        gpu.reason = MatrixReason::NoExtension;
        for kernel in [RareKernel::Gradients, RareKernel::Softmax] {
            gpu.right = Arc::default();
            gpu.set_matrices_tested(RightMatrices { products: true, half_sums: true, elements: true, integers: true });
            assert_eq!(gpu.matrices().tier, MatrixTier::Wgsl);
            assert!(!gpu.set_rare_tested(kernel, false));
            assert_eq!(gpu.matrices(), Matrices { tier: MatrixTier::None, reason: MatrixReason::WrongResults });
        }
    }

    #[test]
    fn what_computes_wrong_results_is_off() {
        let Ok(mut gpu) = Gpu::open(None) else { return };
        // As if the driver supported all of it.
        gpu.target = Target {
            f16: true,
            subgroups: true,
            subgroup_size: SubgroupSizes::fixed(32),
            matrix: 16,
            half_sums: true,
            matrix_elements: true,
            workgroup_matrices: 256,
            ..gpu.target
        };
        gpu.reason = MatrixReason::Highest;
        assert_eq!(gpu.matrices().tier, MatrixTier::Spirv);
        let all = RightMatrices { products: true, half_sums: true, elements: true, integers: true };
        for (right, tier, reason, offered) in [
            (all, MatrixTier::Spirv, MatrixReason::Highest, (16, true, true, 256)),
            (
                RightMatrices { half_sums: false, ..all },
                MatrixTier::Spirv,
                MatrixReason::Highest,
                (16, false, true, 256),
            ),
            (
                RightMatrices { elements: false, ..all },
                MatrixTier::Wgsl,
                MatrixReason::WrongResults,
                (16, true, false, 0),
            ),
            (
                RightMatrices { products: false, half_sums: false, elements: false, integers: false },
                MatrixTier::None,
                MatrixReason::WrongResults,
                (0, false, false, 0),
            ),
        ] {
            let mut fresh = gpu.clone();
            fresh.right = Arc::default();
            let tested = fresh.clone().with_right_matrices(fresh.set_matrices_tested(right));
            assert_eq!([tested.matrices(), fresh.matrices()], [Matrices { tier, reason }; 2]);
            assert_eq!(tested.target().matrices(), offered);
            // A limited device does not record missing features as wrong for the whole device.
            let limited = fresh.with_matrix_tier(MatrixTier::Wgsl).map(|limited| limited.matrices_tested());
            assert_eq!((fresh.matrices_tested(), limited.ok()), (Some(right), right.products.then_some(None)));
        }
    }
}
