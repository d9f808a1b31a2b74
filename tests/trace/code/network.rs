pub fn forward(w: impl Fn(&str) -> TracedTensor, x: &TracedTensor) -> Result<TracedTensor> {
    let _convolution = x._convolution(&w("0.weight"), &w("0.bias"), [1, 1], [1, 1], [1, 1], false, [0, 0], 1, false, false, true, true);
    let batch_norm = _convolution.batch_norm(&w("1.weight"), &w("1.bias"), &w("1.running_mean"), &w("1.running_var"), false, 0.1, 1e-5, true);
    let relu = batch_norm.relu();
    let flatten = relu.flatten_with(kw!(start_dim = 1));
    let linear = flatten.linear_with(&w("4.weight"), kw!(bias = &w("4.bias")));
    Ok(linear)
}
