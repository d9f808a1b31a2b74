pub fn forward(x: &TracedTensor, x_1: &TracedTensor) -> Result<(TracedTensor, TracedTensor, TracedTensor, TracedTensor, TracedTensor)> {
    let x_0 = x.dim(0);
    let x_size_1 = x.dim(1);
    let reshape = x.reshape((&x_0 * 2, &x_size_1 / 2, 1));
    let chunks = x.chunk_with(2, kw!(dim = 1));
    let cat = ops::cat_with(&[&chunks[1], &chunks[0], x_1], kw!(dim = -1));
    let (max, max_1) = cat.max_dim_with(1, kw!(keepdim = true));
    let arange = ops::arange(2);
    let index = cat.index((&arange, Arg::None));
    let arange_1 = ops::arange_start_with(0, &x_0 + 1, kw!(dtype = DType::F32));
    let add = cat.add_with(&max, kw!(alpha = 0.5));
    let clamp = add.clamp_with(kw!(min = -0.5));
    let sum = reshape.sum_dim([2]);
    let softmax = index.softmax(-1);
    Ok((sum, clamp, max_1, softmax, arange_1))
}
