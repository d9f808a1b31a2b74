//! Coefficients of the Airy function from Moshier's Cephes library (`airy.c`), highest order first. PyTorch
//! (`aten/src/ATen/native/Math.h`) omits the leading 1 of some denominators, and so do these tables.

use super::Series;

/// Numerator of the factor of `e^-ζ / (2 √π x^¼)` for `x >= 2.09`, a polynomial in `1 / ζ`.
pub const DECAY: Series = Series::powers(
    "airy_decay",
    &[
        0.346_538_101_525_629,
        12.007_595_273_964_581,
        76.279_605_361_523_45,
        168.089_224_934_630_58,
        159.756_391_350_164_42,
        70.536_090_684_044_42,
        14.026_469_116_338_967,
        1.0,
    ],
);
/// Denominator of [`DECAY`].
pub const DECAY_DIVISOR: Series = Series::powers(
    "airy_decay_divisor",
    &[
        0.567_594_532_638_770_2,
        14.756_256_258_484_72,
        84.513_897_014_147_46,
        177.318_088_145_400_45,
        164.234_692_871_529_7,
        71.477_840_082_557_56,
        14.095_913_560_783_403,
        1.0,
    ],
);

/// Numerator of (P of Hankel's expansion - 1) · `ζ²` for `x < -2.09`, a polynomial in `1 / ζ²`.
pub const P: Series = Series::powers(
    "airy_even",
    &[
        -0.131_696_323_418_331_8,
        -0.626_456_544_431_912_3,
        -0.693_158_036_036_933_5,
        -0.279_779_981_545_119_1,
        -0.049_190_013_260_950_03,
        -0.004_062_659_235_948_854,
        -0.000_159_276_496_239_262_1,
        -2.776_491_081_552_329e-6,
        -1.677_876_984_891_146_5e-8,
    ],
);
/// Denominator of [`P`].
pub const P_DIVISOR: Series = Series::powers(
    "airy_even_divisor",
    &[
        13.356_042_070_655_324,
        32.682_503_279_522_464,
        26.736_704_094_149_957,
        9.187_074_029_072_596,
        1.475_291_467_716_664_2,
        0.115_687_173_795_188_04,
        0.004_402_916_416_152_112,
        7.547_203_482_874_142e-5,
        4.518_500_929_705_803_5e-7,
    ],
);

/// Numerator of Q of Hankel's expansion times `ζ`, a polynomial in `1 / ζ²`.
pub const Q: Series = Series::powers(
    "airy_odd",
    &[
        0.019_733_993_209_168_57,
        0.391_103_029_615_688_27,
        1.065_798_975_995_955_9,
        0.939_169_229_816_650_2,
        0.351_465_656_105_547_64,
        0.063_388_891_962_892_55,
        0.005_858_041_130_483_885,
        0.000_282_851_600_836_737,
        6.987_936_699_972_61e-6,
        8.117_892_395_543_892e-8,
        3.415_517_847_659_236e-10,
    ],
);
/// Denominator of [`Q`].
pub const Q_DIVISOR: Series = Series::powers(
    "airy_odd_divisor",
    &[
        9.308_929_080_774_42,
        19.835_292_871_831_214,
        15.564_662_893_286_462,
        5.476_860_694_229_755,
        0.954_293_611_618_961_9,
        0.086_458_082_635_239_21,
        0.004_126_565_238_242_226,
        0.000_101_259_085_116_509_14,
        1.171_667_332_144_135_2e-6,
        4.918_345_700_629_3e-9,
    ],
);

/// All series of this module.
pub const ALL: &[Series] = &[DECAY, DECAY_DIVISOR, P, P_DIVISOR, Q, Q_DIVISOR];
