//! Every module of `onionskin::nn` against inputs, state dict and outputs that PyTorch recorded, without and within a trace.
//! The labels are those of `tests/fixtures/make_module_cases.py`.

use onionskin::dtype::DType;
use onionskin::nn::*;
use onionskin::tensor::Tensor;
use onionskin::trace::{Forward, Parameter, TracedTensor, allow, init};

use super::recorded_modules::Cases;

/// Checks cases of modules by their names in PyTorch, which are names of `onionskin::nn` too.
macro_rules! cases {
    ($cases:ident; $($name:ident $($variant:literal)?: $module:expr, |$m:ident, $inputs:pat_param| $call:expr;)*) => {$({
        #[allow(unused_imports, reason = "the import shows that the name is there")]
        use onionskin::nn::$name as _;
        let label = concat!(stringify!($name) $(, " ", $variant)?);
        $cases.check(label, $module, |$m, $inputs| $call);
    })*};
    // Modules of one tensor.
    ($cases:ident, unary; $($name:ident $($variant:literal)?: $module:expr;)*) => {
        cases! { $cases; $($name $($variant)?: $module, |m, [x]| m.call(x);)* }
    };
    // Losses, for each reduction. `$weight` reads a recorded weight.
    ($cases:ident, losses; $($name:ident |$weight:ident| $module:expr, |$m:ident, $inputs:pat_param| $call:expr;)*) => {$(
        for reduction in [Reduction::Mean, Reduction::None, Reduction::Sum] {
            let label = match reduction {
                Reduction::Mean => stringify!($name).to_string(),
                other => format!("{} {}", stringify!($name), format!("{other:?}").to_lowercase()),
            };
            let $weight = |name: &str| $cases.weight(&label, name);
            let module: onionskin::nn::$name = $module;
            $cases.check(&label, module.reduction(reduction), |$m, $inputs| $call);
        }
    )*};
}

#[test]
fn every_module_has_pytorchs_state_and_numbers() {
    let mut cases = Cases::read();
    convolutions(&mut cases);
    pooling(&mut cases);
    pads(&mut cases);
    activations(&mut cases);
    norms(&mut cases);
    others(&mut cases);
    containers(&mut cases);
    recurrent(&mut cases);
    attention(&mut cases);
    losses(&mut cases);
    cases.finish();
}

fn convolutions(cases: &mut Cases) {
    cases! { cases, unary;
        Conv1d: Conv1d::new(4, 2, 3).padding(1);
        Conv2d: Conv2d::new(4, 6, 3).stride(2).groups(2);
        Conv2d "same": Conv2d::new(4, 2, 3).same().dilation(2);
        Conv2d "circular": Conv2d::new(4, 2, 3).padding(1).padding_mode(PaddingMode::Circular);
        Conv3d: Conv3d::new(2, 2, 2);
        ConvTranspose1d: ConvTranspose1d::new(4, 2, 2).stride(2);
        ConvTranspose2d: ConvTranspose2d::new(4, 2, 3).stride(2).padding(1).output_padding(1).groups(2);
        ConvTranspose3d: ConvTranspose3d::new(2, 1, 2);
        Fold: Fold::new([4, 5], [2, 3]).padding([0, 1]).stride([2, 1]);
        Unfold: Unfold::new([2, 3]).dilation([2, 1]).padding(1).stride(2);
    }
}

fn pooling(cases: &mut Cases) {
    macro_rules! axes {
        ($($n:literal $max:ident $avg:ident $lp:ident $adaptive_avg:ident $adaptive_max:ident $unpool:ident [$($size:literal)*];)*) => {$(
            cases! { cases, unary;
                $max: $max::new(3).stride(2).padding(1);
                $max "indices": $max::new(2).return_indices();
                $avg: $avg::new(2).padding(1).count_include_pad(false);
                $lp: $lp::new(2.0, 3).stride(2);
                $adaptive_avg: $adaptive_avg::new(3);
                $adaptive_max: $adaptive_max::new(3);
                $adaptive_max "indices": $adaptive_max::new(3).return_indices();
            }
            let size = || vec![$($size.into()),*];
            cases! { cases;
                $unpool: $unpool::new(2), |m, [x, indices]| m.call((x, indices));
                $unpool "size": $unpool::new(2), |m, [x, indices]| m.call((x, indices, size()));
            }
        )*};
    }
    axes! {
        1 MaxPool1d AvgPool1d LPPool1d AdaptiveAvgPool1d AdaptiveMaxPool1d MaxUnpool1d [9];
        2 MaxPool2d AvgPool2d LPPool2d AdaptiveAvgPool2d AdaptiveMaxPool2d MaxUnpool2d [8 7];
        3 MaxPool3d AvgPool3d LPPool3d AdaptiveAvgPool3d AdaptiveMaxPool3d MaxUnpool3d [5 6 4];
    }
    cases! { cases, unary;
        AvgPool2d "divisor": AvgPool2d::new(2).divisor_override(3);
        LPPool2d "maximum": LPPool2d::new(f64::INFINITY, 2);
        LPPool2d "minus": LPPool2d::new(f64::NEG_INFINITY, 2).ceil_mode(true);
    }
}

fn pads(cases: &mut Cases) {
    macro_rules! widths {
        ($($name:ident)*; $widths:expr) => {
            cases! { cases, unary; $($name: $name::new($widths);)* }
        };
    }
    widths!(ZeroPad1d CircularPad1d ReflectionPad1d ReplicationPad1d; [1, 2]);
    widths!(ZeroPad2d CircularPad2d ReflectionPad2d ReplicationPad2d; [1, 2, 0, 1]);
    widths!(ZeroPad3d CircularPad3d ReflectionPad3d ReplicationPad3d; [1, 2, 0, 1, 2, 1]);
    cases! { cases, unary;
        ConstantPad1d: ConstantPad1d::new([1, 2], 1.5);
        ConstantPad2d: ConstantPad2d::new([1, 2, 0, 1], 1.5);
        ConstantPad3d: ConstantPad3d::new([1, 2, 0, 1, 2, 1], 1.5);
        ReflectionPad2d "all": ReflectionPad2d::new(2);
        ZeroPad2d "negative": ZeroPad2d::new([-1, 1, 0, -2]);
    }
}

fn activations(cases: &mut Cases) {
    macro_rules! plain {
        ($($name:ident)*) => {
            cases! { cases, unary; $($name: $name::new();)* }
        };
    }
    plain!(CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh Identity LeakyReLU LogSigmoid Mish ReLU ReLU6);
    plain!(RReLU SELU Sigmoid SiLU Softplus Softshrink Softsign Tanh Tanhshrink Softmax2d);
    cases! { cases, unary;
        GELU "tanh": GELU::new().approximate("tanh");
        Hardshrink "wide": Hardshrink::new().lambd(1.0);
        Softshrink "wide": Softshrink::new().lambd(1.0);
        RReLU "bounds": RReLU::new().bounds(0.5, 0.6);
        Threshold: Threshold::new(0.1, 20.0);
        PReLU: PReLU::new(6);
        Softmax: Softmax::new(1);
        Softmin: Softmin::new(1);
        LogSoftmax: LogSoftmax::new(1);
        Dropout: Dropout::new(0.5);
        Dropout1d: Dropout1d::new(0.5);
        Dropout2d: Dropout2d::new(0.5);
        Dropout3d: Dropout3d::new(0.5);
        AlphaDropout: AlphaDropout::new(0.5);
        FeatureAlphaDropout: FeatureAlphaDropout::new(0.5);
    }
}

fn norms(cases: &mut Cases) {
    cases! { cases, unary;
        BatchNorm1d: BatchNorm1d::new(4);
        BatchNorm2d: BatchNorm2d::new(4);
        BatchNorm3d: BatchNorm3d::new(4);
        InstanceNorm1d: InstanceNorm1d::with(4, true, true);
        InstanceNorm2d: InstanceNorm2d::with(4, true, true);
        InstanceNorm3d: InstanceNorm3d::with(4, true, true);
        GroupNorm: GroupNorm::new(2, 4);
        LayerNorm: LayerNorm::new([6]);
        RMSNorm: RMSNorm::new([6]);
        LocalResponseNorm: LocalResponseNorm::new(3).alpha(0.5).beta(0.6).k(2.0);
        LocalResponseNorm "even": LocalResponseNorm::new(2);
        Linear "weight_norm": WeightNorm::new(Linear::new(6, 3));
        Conv2d "weight_norm": WeightNorm::new(Conv2d::new(4, 2, 3));
        ConvTranspose2d "weight_norm": WeightNorm::along(ConvTranspose2d::new(4, 2, 3), 1);
        Linear "old weight_norm": WeightNorm::new(Linear::new(6, 3)).old_names();
        Linear "spectral_norm": SpectralNorm::new(Linear::new(6, 3));
        Conv2d "spectral_norm": SpectralNorm::new(Conv2d::new(4, 2, 3).bias(false));
        Linear "old spectral_norm": SpectralNorm::new(Linear::new(6, 3)).old_names();
    }
}

fn others(cases: &mut Cases) {
    cases! { cases, unary;
        Linear: Linear::new(6, 4);
        Flatten: Flatten::new();
        Unflatten: Unflatten::new(1, [2, 2]);
        ChannelShuffle: ChannelShuffle::new(2);
        PixelShuffle: PixelShuffle::new(2);
        PixelUnshuffle: PixelUnshuffle::new(2);
        Upsample: Upsample::by(2.0);
        Upsample "exact": Upsample::to([7, 4]).mode("nearest-exact");
        Upsample "bicubic": Upsample::by(2.0).mode("bicubic");
        UpsamplingNearest2d: UpsamplingNearest2d::to([7, 9]);
        UpsamplingBilinear2d: UpsamplingBilinear2d::by(2.0);
        Embedding: Embedding::new(7, 3).padding_idx(-6);
        Embedding "norm": Embedding::new(7, 3).max_norm(1.0).norm_type(1.5);
        EmbeddingBag "mean": EmbeddingBag::new(7, 3);
        EmbeddingBag "sum": EmbeddingBag::new(7, 3).mode(BagMode::Sum);
        EmbeddingBag "max": EmbeddingBag::new(7, 3).mode(BagMode::Max);
    }
    let bags = |ids: &TracedTensor, offsets: &TracedTensor| Bags::new(ids).offsets(offsets);
    cases! { cases;
        Bilinear: Bilinear::new(3, 2, 4), |m, [a, b]| m.call((a, b));
        CosineSimilarity: CosineSimilarity::new(), |m, [a, b]| m.call((a, b));
        CosineSimilarity "last": CosineSimilarity::new().dim(-1).eps(0.1), |m, [a, b]| m.call((a, b));
        PairwiseDistance: PairwiseDistance::new(), |m, [a, b]| m.call((a, b));
        PairwiseDistance "cubic": PairwiseDistance::new().p(3.0).eps(0.1).keepdim(true), |m, [a, b]| m.call((a, b));
        EmbeddingBag "offsets": EmbeddingBag::new(7, 3).padding_idx(1), |m, [x, o]| m.call(bags(x, o));
        EmbeddingBag "last": EmbeddingBag::new(7, 3).include_last_offset(true), |m, [x, o]| m.call(bags(x, o));
        EmbeddingBag "weights": EmbeddingBag::new(7, 3).mode(BagMode::Sum), |m, [x, w]| {
            m.call(Bags::new(x).per_sample_weights(w))
        };
    }
}

fn containers(cases: &mut Cases) {
    let linears = || [Linear::new(6, 3), Linear::new(6, 2)];
    let parameters = || [[6].as_slice(), &[2, 1]].map(|shape| Parameter::new(shape, init::zeros()));
    let sequential = Sequential::new()
        .add(Linear::new(6, 3))
        .add(ReLU::new())
        .add(Linear::new(3, 2));
    cases! { cases;
        Sequential: sequential, |m, [x]| m.call(x);
        ModuleList: ModuleList::from(linears()), |m, [x]| (m[0].call(x), m[1].call(x));
        ModuleDict: ModuleDict::new(["b", "a"].into_iter().zip(linears())), |m, [x]| {
            ["b", "a"].map(|name| m.get(name).unwrap().call(x))
        };
        ParameterList: ParameterList::from(parameters()), |m, [x]| x * &m[0] + &m[1];
        ParameterDict: ParameterDict::new(["b", "a"].into_iter().zip(parameters())), |m, [x]| {
            x * m.get("b").unwrap() + m.get("a").unwrap()
        };
    }
}

fn recurrent(cases: &mut Cases) {
    cases! { cases;
        LSTM: LSTM::new(3, 2).num_layers(2).bidirectional(true).batch_first(true), |m, [x, h, c]| m.call((x, (h, c)));
        LSTM "unbatched": LSTM::new(3, 2).bias(false), |m, [x, h, c]| m.call((x, (h, c)));
        LSTMCell: LSTMCell::new(3, 2), |m, [x, h, c]| m.call((x, (h, c)));
        LSTMCell "unbatched": LSTMCell::new(3, 2).bias(false), |m, [x, h, c]| m.call((x, (h, c)));
        GRU: GRU::new(3, 2).num_layers(2).bidirectional(true).batch_first(true), |m, [x, h]| m.call((x, h));
        GRU "unbatched": GRU::new(3, 2).bias(false), |m, [x, h]| m.call((x, h));
        GRUCell: GRUCell::new(3, 2), |m, [x, h]| m.call((x, h));
        GRUCell "unbatched": GRUCell::new(3, 2).bias(false), |m, [x, h]| m.call((x, h));
        RNN: RNN::new(3, 2).num_layers(2).bidirectional(true).batch_first(true), |m, [x, h]| m.call((x, h));
        RNN "unbatched": RNN::new(3, 2).bias(false), |m, [x, h]| m.call((x, h));
        RNNCell: RNNCell::new(3, 2), |m, [x, h]| m.call((x, h));
        RNNCell "unbatched": RNNCell::new(3, 2).bias(false), |m, [x, h]| m.call((x, h));
    }
    cases! { cases, unary;
        LSTM "zeros": LSTM::new(3, 2);
        LSTM "projected": LSTM::new(3, 4).proj_size(2);
        LSTMCell "zeros": LSTMCell::new(3, 2);
        GRU "zeros": GRU::new(3, 2);
        GRUCell "zeros": GRUCell::new(3, 2);
        RNN "zeros": RNN::new(3, 2);
        RNN "relu": RNN::new(3, 2).nonlinearity(Nonlinearity::Relu);
        RNNCell "zeros": RNNCell::new(3, 2);
        RNNCell "relu": RNNCell::new(3, 2).nonlinearity(Nonlinearity::Relu);
    }
}

fn attention(cases: &mut Cases) {
    let attend = || MultiheadAttention::new(4, 2);
    let masked = |[q, k, a, p]: [&TracedTensor; 4]| {
        Attention::new(q, k, k)
            .attn_mask(Some(a))
            .key_padding_mask(Some(p))
    };
    let all = attend()
        .kdim(3)
        .vdim(5)
        .add_bias_kv(true)
        .add_zero_attn(true)
        .bias(false);
    cases! { cases;
        MultiheadAttention: attend(), |m, [q, k, v]| m.call((q, k, v));
        MultiheadAttention "masked": attend(), |m, inputs| m.call(masked(inputs));
        MultiheadAttention "bias_kv": attend().add_bias_kv(true), |m, inputs| m.call(masked(inputs));
        MultiheadAttention "zero": attend().add_zero_attn(true), |m, inputs| m.call(masked(inputs));
        MultiheadAttention "all": all, |m, [q, k, v]| m.call((q, k, v));
        MultiheadAttention "fused": attend().add_bias_kv(true), |m, inputs| m.call(masked(inputs).need_weights(false));
    }
    let encoder = || TransformerEncoderLayer::new(4, 2, 6);
    let decoder = || TransformerDecoderLayer::new(4, 2, 6);
    let encoders =
        TransformerEncoder::new([encoder(), encoder()]).map(|layer| layer.norm_first(true));
    let decoders = TransformerDecoder::new([decoder(), decoder()]).norm(LayerNorm::new([4]));
    let first = decoder()
        .norm_first(true)
        .batch_first(true)
        .bias(false)
        .layer_norm_eps(0.1);
    let whole = || Transformer::new(4, 2, [2, 1], 6);
    let causal = |[x, y, a, b, p]: [&TracedTensor; 5]| {
        let decoding = Decoding::new(x, y).tgt_mask(Some(a)).tgt_is_causal(true);
        decoding
            .memory_mask(Some(b))
            .memory_key_padding_mask(Some(p))
    };
    let padded = |[x, y, a, p]: [&TracedTensor; 4]| {
        let decoding = Decoding::new(y, x)
            .tgt_mask(Some(a))
            .src_key_padding_mask(Some(p));
        decoding.memory_key_padding_mask(Some(p))
    };
    cases! { cases;
        TransformerEncoderLayer: encoder().layer_norm_eps(0.1).bias(false), |m, [x]| m.call(x);
        TransformerEncoder: encoders.norm(LayerNorm::new([4])), |m, [x]| m.call(x);
        TransformerDecoderLayer: decoder().activation(TracedTensor::gelu), |m, [x, y]| m.call((x, y));
        TransformerDecoderLayer "first": first, |m, [x, y]| m.call((x, y));
        TransformerDecoder: decoders, |m, inputs| m.call(causal(inputs));
        Transformer: whole(), |m, [x, y]| m.call((x, y));
        Transformer "masked": whole().batch_first(true).norm_first(true), |m, inputs| m.call(padded(inputs));
    }
}

fn losses(cases: &mut Cases) {
    cases! { cases, losses;
        L1Loss |_weight| L1Loss::new(), |m, [x, y]| m.call((x, y));
        MSELoss |_weight| MSELoss::new(), |m, [x, y]| m.call((x, y));
        SmoothL1Loss |_weight| SmoothL1Loss::new().beta(0.5), |m, [x, y]| m.call((x, y));
        HuberLoss |_weight| HuberLoss::new().delta(0.5), |m, [x, y]| m.call((x, y));
        BCELoss |weight| BCELoss::new().weight(weight("weight")), |m, [x, y]| m.call((x, y));
        BCEWithLogitsLoss |weight| BCEWithLogitsLoss::new().weight(weight("weight")).pos_weight(weight("pos_weight")),
            |m, [x, y]| m.call((x, y));
        KLDivLoss |_weight| KLDivLoss::new(), |m, [x, y]| m.call((x, y));
        PoissonNLLLoss |_weight| PoissonNLLLoss::new().full(true), |m, [x, y]| m.call((x, y));
        GaussianNLLLoss |_weight| GaussianNLLLoss::new().full(true), |m, [x, y, v]| m.call((x, y, v));
        HingeEmbeddingLoss |_weight| HingeEmbeddingLoss::new().margin(0.5), |m, [x, y]| m.call((x, y));
        SoftMarginLoss |_weight| SoftMarginLoss::new(), |m, [x, y]| m.call((x, y));
        MultiLabelMarginLoss |_weight| MultiLabelMarginLoss::new(), |m, [x, y]| m.call((x, y));
        MultiLabelSoftMarginLoss |weight| MultiLabelSoftMarginLoss::new().weight(weight("weight")), |m, [x, y]| m.call((x, y));
        MultiMarginLoss |weight| MultiMarginLoss::new().p(2).margin(0.5).weight(weight("weight")), |m, [x, y]| m.call((x, y));
        NLLLoss |weight| NLLLoss::new().weight(weight("weight")).ignore_index(3), |m, [x, y]| m.call((x, y));
        CrossEntropyLoss |weight| CrossEntropyLoss::new().weight(weight("weight")).label_smoothing(0.1),
            |m, [x, y]| m.call((x, y));
        MarginRankingLoss |_weight| MarginRankingLoss::new().margin(0.5), |m, [a, b, y]| m.call((a, b, y));
        CosineEmbeddingLoss |_weight| CosineEmbeddingLoss::new().margin(0.1), |m, [a, b, y]| m.call((a, b, y));
        TripletMarginLoss |_weight| TripletMarginLoss::new().margin(2.0).p(3.0).swap(true), |m, [a, b, c]| m.call((a, b, c));
        TripletMarginWithDistanceLoss |_weight| TripletMarginWithDistanceLoss::new().margin(2.0).swap(true),
            |m, [a, b, c]| m.call((a, b, c));
        CTCLoss |_weight| CTCLoss::new().blank(4), |m, [x, y, i, t]| m.call((x, y, i, t));
    }
    let samples = |shape: [usize; 3]| Tensor::full(DType::F32, shape, 0.5).unwrap();
    let absolute = |a: &TracedTensor, b: &TracedTensor| (a - b).abs().sum_dim([-1]);
    cases! { cases;
        KLDivLoss "batchmean": KLDivLoss::new().batch_mean(true).log_target(true), |m, [x, y]| m.call((x, y));
        PoissonNLLLoss "rate": PoissonNLLLoss::new().log_input(false).eps(0.1), |m, [x, y]| m.call((x, y));
        GaussianNLLLoss "row": GaussianNLLLoss::new().eps(0.5), |m, [x, y, v]| m.call((x, y, v));
        NLLLoss2d: NLLLoss2d::new(), |m, [x, y]| m.call((x, y));
        CrossEntropyLoss "probabilities": CrossEntropyLoss::new(), |m, [x, y]| m.call((x, y));
        TripletMarginWithDistanceLoss "own": TripletMarginWithDistanceLoss::new().distance_function(absolute),
            |m, [a, b, c]| m.call((a, b, c));
        FractionalMaxPool2d: FractionalMaxPool2d::new(2, 3).random_samples(samples([2, 3, 2])), |m, [x]| m.call(x);
        FractionalMaxPool2d "indices": FractionalMaxPool2d::by_ratio(2, [0.5; 2]).random_samples(samples([2, 3, 2])).return_indices(),
            |m, [x]| allow("W0202", || m.call(x));
        FractionalMaxPool3d: FractionalMaxPool3d::new(2, 3).random_samples(samples([2, 2, 3])), |m, [x]| m.call(x);
        FractionalMaxPool3d "indices": FractionalMaxPool3d::by_ratio(2, [0.5; 3]).random_samples(samples([2, 2, 3])).return_indices(),
            |m, [x]| allow("W0202", || m.call(x));
        CTCLoss "infinite": CTCLoss::new().zero_infinity(true), |m, [x, y, i, t]| m.call((x, y, i, t));
        AdaptiveLogSoftmaxWithLoss: AdaptiveLogSoftmaxWithLoss::with_div_value(8, 11, &[3, 6], 2.0), |m, [x, y]| m.call((x, y));
        AdaptiveLogSoftmaxWithLoss "row": AdaptiveLogSoftmaxWithLoss::new(8, 9, &[4]).head_bias(true), |m, [x, y]| m.call((x, y));
        AdaptiveLogSoftmaxWithLoss "classes": AdaptiveLogSoftmaxWithLoss::new(8, 11, &[3, 6]),
            |m, [x]| (m.log_prob(x), m.predict(x));
    }
}
