//! The self-test of matrix kernels.

use rewire_runtime::block_on;
use rewire_tests::backend::gpu;

#[test]
fn matrix_kernels_of_the_driver_pass_the_self_test() {
    let Some(gpu) = gpu() else { return };
    let offered = gpu.matrices();
    assert_eq!([(); 2].map(|()| block_on(gpu.test_matrices())), [offered; 2]);
}
