#pragma once
/// Tensors and the text that PyTorch 2.15 and its libtorch show for them.

#include "print_case.h"

namespace athanor::testing {

// clang-format off
inline std::vector<Case> python_cases() {
  return {
    Case(kFloat, {3}, real({1, 2, 3})).want(R"(tensor([1., 2., 3.]))"),
    Case(kFloat, {2, 2}, real({1.5, -2.25, 1000, 0.125})).want(R"(tensor([[ 1.5000e+00, -2.2500e+00],
        [ 1.0000e+03,  1.2500e-01]]))"),
    Case(kFloat, {}, real({3.14159})).want(R"(tensor(3.1416))"),
    Case(kFloat, {}, real({2})).want(R"(tensor(2.))"),
    Case(kLong, {}, whole({-7})).want(R"(tensor(-7))"),
    Case(kBool, {}, real({1})).want(R"(tensor(True))"),
    Case(kFloat, {}, real({kNan})).want(R"(tensor(nan))"),
    Case(kDouble, {}, real({1e-07})).want(R"(tensor(1.0000e-07, dtype=torch.float64))"),
    Case(kLong, {2, 3}, whole({1, -20, 300, 4, 5, 6})).want(R"(tensor([[  1, -20, 300],
        [  4,   5,   6]]))"),
    Case(kInt, {3}, whole({1, 2, 3})).want(R"(tensor([1, 2, 3], dtype=torch.int32))"),
    Case(kByte, {2}, whole({0, 255})).want(R"(tensor([  0, 255], dtype=torch.uint8))"),
    Case(kChar, {2}, whole({-128, 127})).want(R"(tensor([-128,  127], dtype=torch.int8))"),
    Case(kShort, {1}, whole({-300})).want(R"(tensor([-300], dtype=torch.int16))"),
    Case(kBool, {2, 2}, real({1, 0, 0, 1})).want(R"(tensor([[ True, False],
        [False,  True]]))"),
    Case(kDouble, {2}, real({0.1, 0.25})).want(R"(tensor([0.1000, 0.2500], dtype=torch.float64))"),
    Case(kHalf, {2}, real({0.1, 65504})).want(R"(tensor([9.9976e-02, 6.5504e+04], dtype=torch.float16))"),
    Case(kBFloat16, {3}, real({0.1, 1, 3.140625})).want(R"(tensor([0.1001, 1.0000, 3.1406], dtype=torch.bfloat16))"),
    Case(kLong, {2}, whole({9223372036854775807LL, INT64_MIN})).want(R"(tensor([ 9223372036854775807, -9223372036854775808]))"),
    Case(kFloat, {4}, real({kNan, kInf, -kInf, 1})).want(R"(tensor([nan, inf, -inf, 1.]))"),
    Case(kFloat, {4}, real({kNan, kInf, -kInf, 1.5})).want(R"(tensor([   nan,    inf,   -inf, 1.5000]))"),
    Case(kFloat, {2}, real({kNan, kNan})).want(R"(tensor([nan, nan]))"),
    Case(kFloat, {3}, real({0.0, -0.0, 0.0})).want(R"(tensor([0., -0., 0.]))"),
    Case(kFloat, {2}, real({-0.0, 1.5})).want(R"(tensor([-0.0000, 1.5000]))"),
    Case(kFloat, {3}, real({1e-05, 1, 2})).want(R"(tensor([1.0000e-05, 1.0000e+00, 2.0000e+00]))"),
    Case(kFloat, {2}, real({1, 1000000000.0})).want(R"(tensor([1.0000e+00, 1.0000e+09]))"),
    Case(kFloat, {2}, real({100000000.0, 200000000.0})).want(R"(tensor([1.0000e+08, 2.0000e+08]))"),
    Case(kFloat, {2}, real({0.5, 1000})).want(R"(tensor([5.0000e-01, 1.0000e+03]))"),
    Case(kFloat, {2}, real({0.5, 500.5})).want(R"(tensor([5.0000e-01, 5.0050e+02]))"),
    Case(kDouble, {2}, real({1e+300, -1e-300})).want(R"(tensor([ 1.0000e+300, -1.0000e-300], dtype=torch.float64))"),
    Case(kFloat, {3}, real({10000000000.0, kNan, -kInf})).want(R"(tensor([1.0000e+10,        nan,       -inf]))"),
    Case(kFloat, {2}, real({1, 2000.5})).want(R"(tensor([1.0000e+00, 2.0005e+03]))"),
    Case(kFloat, {2}, real({0.0001, 0.01})).want(R"(tensor([1.0000e-04, 1.0000e-02]))"),
    Case(kFloat, {0}, real({})).want(R"(tensor([]))"),
    Case(kFloat, {0, 3}, real({})).want(R"(tensor([], size=(0, 3)))"),
    Case(kLong, {0}, whole({})).want(R"(tensor([], dtype=torch.int64))"),
    Case(kLong, {2, 0}, whole({})).want(R"(tensor([], size=(2, 0), dtype=torch.int64))"),
    Case(kDouble, {0}, real({})).requires_grad().want(R"(tensor([], dtype=torch.float64, requires_grad=True))"),
    Case(kBool, {1, 0, 2}, real({})).want(R"(tensor([], size=(1, 0, 2), dtype=torch.bool))"),
    Case(kFloat, {30}, ramp(0, 1)).want(R"(tensor([ 0.,  1.,  2.,  3.,  4.,  5.,  6.,  7.,  8.,  9., 10., 11., 12., 13.,
        14., 15., 16., 17., 18., 19., 20., 21., 22., 23., 24., 25., 26., 27.,
        28., 29.]))"),
    Case(kLong, {40}, ramp(-20, 1)).want(R"(tensor([-20, -19, -18, -17, -16, -15, -14, -13, -12, -11, -10,  -9,  -8,  -7,
         -6,  -5,  -4,  -3,  -2,  -1,   0,   1,   2,   3,   4,   5,   6,   7,
          8,   9,  10,  11,  12,  13,  14,  15,  16,  17,  18,  19]))"),
    Case(kFloat, {25}, ramp(-1, 0.37)).want(R"(tensor([-1.0000, -0.6300, -0.2600,  0.1100,  0.4800,  0.8500,  1.2200,  1.5900,
         1.9600,  2.3300,  2.7000,  3.0700,  3.4400,  3.8100,  4.1800,  4.5500,
         4.9200,  5.2900,  5.6600,  6.0300,  6.4000,  6.7700,  7.1400,  7.5100,
         7.8800]))"),
    Case(kFloat, {2, 25}, ramp(0, 1.5)).want(R"(tensor([[ 0.0000,  1.5000,  3.0000,  4.5000,  6.0000,  7.5000,  9.0000, 10.5000,
         12.0000, 13.5000, 15.0000, 16.5000, 18.0000, 19.5000, 21.0000, 22.5000,
         24.0000, 25.5000, 27.0000, 28.5000, 30.0000, 31.5000, 33.0000, 34.5000,
         36.0000],
        [37.5000, 39.0000, 40.5000, 42.0000, 43.5000, 45.0000, 46.5000, 48.0000,
         49.5000, 51.0000, 52.5000, 54.0000, 55.5000, 57.0000, 58.5000, 60.0000,
         61.5000, 63.0000, 64.5000, 66.0000, 67.5000, 69.0000, 70.5000, 72.0000,
         73.5000]]))"),
    Case(kLong, {1001}, ramp(0, 1)).want(R"(tensor([   0,    1,    2,  ...,  998,  999, 1000]))"),
    Case(kFloat, {40, 40}, ramp(0, 1)).want(R"(tensor([[0.0000e+00, 1.0000e+00, 2.0000e+00,  ..., 3.7000e+01, 3.8000e+01,
         3.9000e+01],
        [4.0000e+01, 4.1000e+01, 4.2000e+01,  ..., 7.7000e+01, 7.8000e+01,
         7.9000e+01],
        [8.0000e+01, 8.1000e+01, 8.2000e+01,  ..., 1.1700e+02, 1.1800e+02,
         1.1900e+02],
        ...,
        [1.4800e+03, 1.4810e+03, 1.4820e+03,  ..., 1.5170e+03, 1.5180e+03,
         1.5190e+03],
        [1.5200e+03, 1.5210e+03, 1.5220e+03,  ..., 1.5570e+03, 1.5580e+03,
         1.5590e+03],
        [1.5600e+03, 1.5610e+03, 1.5620e+03,  ..., 1.5970e+03, 1.5980e+03,
         1.5990e+03]]))"),
    Case(kFloat, {2, 2, 2}, ramp(0, 1)).want(R"(tensor([[[0., 1.],
         [2., 3.]],

        [[4., 5.],
         [6., 7.]]]))"),
    Case(kFloat, {2, 1, 2, 2}, ramp(0, 0.5)).want(R"(tensor([[[[0.0000, 0.5000],
          [1.0000, 1.5000]]],


        [[[2.0000, 2.5000],
          [3.0000, 3.5000]]]]))"),
    Case(kLong, {12, 10, 10}, ramp(0, 1)).want(R"(tensor([[[   0,    1,    2,  ...,    7,    8,    9],
         [  10,   11,   12,  ...,   17,   18,   19],
         [  20,   21,   22,  ...,   27,   28,   29],
         ...,
         [  70,   71,   72,  ...,   77,   78,   79],
         [  80,   81,   82,  ...,   87,   88,   89],
         [  90,   91,   92,  ...,   97,   98,   99]],

        [[ 100,  101,  102,  ...,  107,  108,  109],
         [ 110,  111,  112,  ...,  117,  118,  119],
         [ 120,  121,  122,  ...,  127,  128,  129],
         ...,
         [ 170,  171,  172,  ...,  177,  178,  179],
         [ 180,  181,  182,  ...,  187,  188,  189],
         [ 190,  191,  192,  ...,  197,  198,  199]],

        [[ 200,  201,  202,  ...,  207,  208,  209],
         [ 210,  211,  212,  ...,  217,  218,  219],
         [ 220,  221,  222,  ...,  227,  228,  229],
         ...,
         [ 270,  271,  272,  ...,  277,  278,  279],
         [ 280,  281,  282,  ...,  287,  288,  289],
         [ 290,  291,  292,  ...,  297,  298,  299]],

        ...,

        [[ 900,  901,  902,  ...,  907,  908,  909],
         [ 910,  911,  912,  ...,  917,  918,  919],
         [ 920,  921,  922,  ...,  927,  928,  929],
         ...,
         [ 970,  971,  972,  ...,  977,  978,  979],
         [ 980,  981,  982,  ...,  987,  988,  989],
         [ 990,  991,  992,  ...,  997,  998,  999]],

        [[1000, 1001, 1002,  ..., 1007, 1008, 1009],
         [1010, 1011, 1012,  ..., 1017, 1018, 1019],
         [1020, 1021, 1022,  ..., 1027, 1028, 1029],
         ...,
         [1070, 1071, 1072,  ..., 1077, 1078, 1079],
         [1080, 1081, 1082,  ..., 1087, 1088, 1089],
         [1090, 1091, 1092,  ..., 1097, 1098, 1099]],

        [[1100, 1101, 1102,  ..., 1107, 1108, 1109],
         [1110, 1111, 1112,  ..., 1117, 1118, 1119],
         [1120, 1121, 1122,  ..., 1127, 1128, 1129],
         ...,
         [1170, 1171, 1172,  ..., 1177, 1178, 1179],
         [1180, 1181, 1182,  ..., 1187, 1188, 1189],
         [1190, 1191, 1192,  ..., 1197, 1198, 1199]]]))"),
    Case(kFloat, {1, 1, 1}, real({5})).want(R"(tensor([[[5.]]]))"),
    Case(kInt, {3, 400}, ramp(0, 1)).want(R"(tensor([[   0,    1,    2,  ...,  397,  398,  399],
        [ 400,  401,  402,  ...,  797,  798,  799],
        [ 800,  801,  802,  ..., 1197, 1198, 1199]], dtype=torch.int32))"),
    Case(kFloat, {7, 143}, ramp(0, 1)).want(R"(tensor([[   0.,    1.,    2.,  ...,  140.,  141.,  142.],
        [ 143.,  144.,  145.,  ...,  283.,  284.,  285.],
        [ 286.,  287.,  288.,  ...,  426.,  427.,  428.],
        ...,
        [ 572.,  573.,  574.,  ...,  712.,  713.,  714.],
        [ 715.,  716.,  717.,  ...,  855.,  856.,  857.],
        [ 858.,  859.,  860.,  ...,  998.,  999., 1000.]]))"),
    Case(kFloat, {3}, real({1, 2, 3})).requires_grad().want(R"(tensor([1., 2., 3.], requires_grad=True))"),
    Case(kFloat, {2, 2}, real({1, 2, 3, 4})).grad_fn("MulBackward0").want(R"(tensor([[1., 2.],
        [3., 4.]], grad_fn=<MulBackward0>))"),
    Case(kDouble, {2}, real({1, 2})).grad_fn("MulBackward0").want(R"(tensor([1., 2.], dtype=torch.float64, grad_fn=<MulBackward0>))"),
    Case(kFloat, {9}, ramp(0, 1.25)).grad_fn("MulBackward0").want(R"(tensor([ 0.0000,  1.2500,  2.5000,  3.7500,  5.0000,  6.2500,  7.5000,  8.7500,
        10.0000], grad_fn=<MulBackward0>))"),
    Case(kDouble, {11}, ramp(0, 1000.5)).requires_grad().want(R"(tensor([    0.0000,  1000.5000,  2001.0000,  3001.5000,  4002.0000,  5002.5000,
         6003.0000,  7003.5000,  8004.0000,  9004.5000, 10005.0000],
       dtype=torch.float64, requires_grad=True))"),
    Case(kDouble, {8}, ramp(100.25, 1)).grad_fn("MulBackward0").want(R"(tensor([100.2500, 101.2500, 102.2500, 103.2500, 104.2500, 105.2500, 106.2500,
        107.2500], dtype=torch.float64, grad_fn=<MulBackward0>))"),
    Case(kFloat, {3}, real({1.23456789, 2, 3})).precision(2).want(R"(tensor([1.23, 2.00, 3.00]))"),
    Case(kFloat, {3}, real({1.5, 2, 3})).precision(0).want(R"(tensor([2, 2, 3]))"),
    Case(kFloat, {3}, real({1.23456789, 2, 3})).precision(8).want(R"(tensor([1.23456788, 2.00000000, 3.00000000]))"),
    Case(kFloat, {3}, real({1, 2, 3})).sci_mode(true).want(R"(tensor([1.0000e+00, 2.0000e+00, 3.0000e+00]))"),
    Case(kFloat, {2}, real({1e-06, 1000000.0})).sci_mode(false).want(R"(tensor([      0.0000, 1000000.0000]))"),
    Case(kLong, {10}, ramp(0, 1)).threshold(5).want(R"(tensor([0, 1, 2,  ..., 7, 8, 9]))"),
    Case(kLong, {10}, ramp(0, 1)).threshold(5).edgeitems(1).want(R"(tensor([0,  ..., 9]))"),
    Case(kLong, {10}, ramp(0, 1)).threshold(5).edgeitems(0).want(R"(tensor([...], size=(10,)))"),
    Case(kLong, {3, 10}, ramp(0, 1)).threshold(5).edgeitems(2).want(R"(tensor([[ 0,  1,  ...,  8,  9],
        [10, 11,  ..., 18, 19],
        [20, 21,  ..., 28, 29]]))"),
    Case(kLong, {3, 3}, ramp(0, 1)).threshold(5).edgeitems(0).want(R"(tensor([...], size=(3, 3)))"),
    Case(kLong, {20}, ramp(0, 1)).linewidth(20).want(R"(tensor([ 0,  1,  2,
         3,  4,  5,
         6,  7,  8,
         9, 10, 11,
        12, 13, 14,
        15, 16, 17,
        18, 19]))"),
    Case(kFloat, {3, 3}, ramp(0, 1)).linewidth(1).want(R"(tensor([[0.,
         1.,
         2.],
        [3.,
         4.,
         5.],
        [6.,
         7.,
         8.]]))"),
    Case(kFloat, {3}, real({1, 2, 3})).linewidth(24).grad_fn("MulBackward0").want(R"(tensor([1., 2., 3.],
       grad_fn=<MulBackward0>))"),
    Case(kFloat, {3}, real({1, 2.5, 3})).linewidth(40).precision(6).requires_grad().want(R"(tensor([1.000000, 2.500000, 3.000000],
       requires_grad=True))"),
  };
}

inline std::vector<Case> cpp_cases() {
  return {
    Case(kFloat, {3}, real({1, 2, 3})).want(R"( 1
 2
 3
[ CPUFloatType{3} ])"),
    Case(kFloat, {2, 2}, real({1.5, -2.25, 1000, 0.125})).want(R"(    1.5000    -2.2500
 1000.0000     0.1250
[ CPUFloatType{2,2} ])"),
    Case(kFloat, {}, real({3.14159})).want(R"(3.141590118408203
[ CPUFloatType{} ])"),
    Case(kFloat, {}, real({2})).want(R"(2
[ CPUFloatType{} ])"),
    Case(kLong, {}, whole({-7})).want(R"(-7
[ CPULongType{} ])"),
    Case(kBool, {}, real({1})).want(R"(1
[ CPUBoolType{} ])"),
    Case(kFloat, {}, real({kNan})).want(R"(nan
[ CPUFloatType{} ])"),
    Case(kDouble, {}, real({1e-07})).want(R"(1e-07
[ CPUDoubleType{} ])"),
    Case(kLong, {2, 3}, whole({1, -20, 300, 4, 5, 6})).want(R"(   1  -20  300
   4    5    6
[ CPULongType{2,3} ])"),
    Case(kInt, {3}, whole({1, 2, 3})).want(R"( 1
 2
 3
[ CPUIntType{3} ])"),
    Case(kByte, {2}, whole({0, 255})).want(R"(   0
 255
[ CPUByteType{2} ])"),
    Case(kChar, {2}, whole({-128, 127})).want(R"(-128
 127
[ CPUCharType{2} ])"),
    Case(kShort, {1}, whole({-300})).want(R"(-300
[ CPUShortType{1} ])"),
    Case(kBool, {2, 2}, real({1, 0, 0, 1})).want(R"( 1  0
 0  1
[ CPUBoolType{2,2} ])"),
    Case(kDouble, {2}, real({0.1, 0.25})).want(R"( 0.1000
 0.2500
[ CPUDoubleType{2} ])"),
    Case(kHalf, {2}, real({0.1, 65504})).want(R"( 9.9976e-02
 6.5504e+04
[ CPUHalfType{2} ])"),
    Case(kBFloat16, {3}, real({0.1, 1, 3.140625})).want(R"( 0.1001
 1.0000
 3.1406
[ CPUBFloat16Type{3} ])"),
    Case(kLong, {2}, whole({9223372036854775807LL, INT64_MIN})).want(R"( 9.2234e+18
-9.2234e+18
[ CPULongType{2} ])"),
    Case(kFloat, {4}, real({kNan, kInf, -kInf, 1})).want(R"(nan
inf
-inf
 1
[ CPUFloatType{4} ])"),
    Case(kFloat, {4}, real({kNan, kInf, -kInf, 1.5})).want(R"(    nan
    inf
   -inf
 1.5000
[ CPUFloatType{4} ])"),
    Case(kFloat, {2}, real({kNan, kNan})).want(R"(nan
nan
[ CPUFloatType{2} ])"),
    Case(kFloat, {3}, real({0.0, -0.0, 0.0})).want(R"( 0
-0
 0
[ CPUFloatType{3} ])"),
    Case(kFloat, {2}, real({-0.0, 1.5})).want(R"(-0.0000
 1.5000
[ CPUFloatType{2} ])"),
    Case(kFloat, {3}, real({1e-05, 1, 2})).want(R"( 1.0000e-05
 1.0000e+00
 2.0000e+00
[ CPUFloatType{3} ])"),
    Case(kFloat, {2}, real({1, 1000000000.0})).want(R"( 1.0000e+00
 1.0000e+09
[ CPUFloatType{2} ])"),
    Case(kFloat, {2}, real({100000000.0, 200000000.0})).want(R"(     1e+08
     2e+08
[ CPUFloatType{2} ])"),
    Case(kFloat, {2}, real({0.5, 1000})).want(R"(    0.5000
 1000.0000
[ CPUFloatType{2} ])"),
    Case(kFloat, {2}, real({0.5, 500.5})).want(R"(   0.5000
 500.5000
[ CPUFloatType{2} ])"),
    Case(kDouble, {2}, real({1e+300, -1e-300})).want(R"( 1.0000e+300
-1.0000e-300
[ CPUDoubleType{2} ])"),
    Case(kFloat, {3}, real({10000000000.0, kNan, -kInf})).want(R"( 1.0000e+10
        nan
       -inf
[ CPUFloatType{3} ])"),
    Case(kFloat, {2}, real({1, 2000.5})).want(R"(    1.0000
 2000.5000
[ CPUFloatType{2} ])"),
    Case(kFloat, {2}, real({0.0001, 0.01})).want(R"(0.001 *
 0.1000
10.0000
[ CPUFloatType{2} ])"),
    Case(kFloat, {0}, real({})).want(R"([ CPUFloatType{0} ])"),
    Case(kFloat, {0, 3}, real({})).want(R"([ CPUFloatType{0,3} ])"),
    Case(kLong, {0}, whole({})).want(R"([ CPULongType{0} ])"),
    Case(kLong, {2, 0}, whole({})).want(R"([ CPULongType{2,0} ])"),
    Case(kDouble, {0}, real({})).want(R"([ CPUDoubleType{0} ])"),
    Case(kBool, {1, 0, 2}, real({})).want(R"([ CPUBoolType{1,0,2} ])"),
    Case(kFloat, {2, 30}, ramp(0, 1)).want(R"(Columns 1 to 20  0   1   2   3   4   5   6   7   8   9  10  11  12  13  14  15  16  17  18  19
 30  31  32  33  34  35  36  37  38  39  40  41  42  43  44  45  46  47  48  49

Columns 21 to 30 20  21  22  23  24  25  26  27  28  29
 50  51  52  53  54  55  56  57  58  59
[ CPUFloatType{2,30} ])"),
    Case(kFloat, {2, 30}, ramp(0, 0.37)).want(R"(Columns 1 to 8  0.0000   0.3700   0.7400   1.1100   1.4800   1.8500   2.2200   2.5900
 11.1000  11.4700  11.8400  12.2100  12.5800  12.9500  13.3200  13.6900

Columns 9 to 16  2.9600   3.3300   3.7000   4.0700   4.4400   4.8100   5.1800   5.5500
 14.0600  14.4300  14.8000  15.1700  15.5400  15.9100  16.2800  16.6500

Columns 17 to 24  5.9200   6.2900   6.6600   7.0300   7.4000   7.7700   8.1400   8.5100
 17.0200  17.3900  17.7600  18.1300  18.5000  18.8700  19.2400  19.6100

Columns 25 to 30  8.8800   9.2500   9.6200   9.9900  10.3600  10.7300
 19.9800  20.3500  20.7200  21.0900  21.4600  21.8300
[ CPUFloatType{2,30} ])"),
    Case(kFloat, {2, 3, 4}, ramp(0, 1)).want(R"((1,.,.) = 
  0   1   2   3
   4   5   6   7
   8   9  10  11

(2,.,.) = 
 12  13  14  15
  16  17  18  19
  20  21  22  23
[ CPUFloatType{2,3,4} ])"),
    Case(kLong, {2, 2, 2, 2}, ramp(0, 1)).want(R"((1,1,.,.) = 
 0  1
  2  3

(2,1,.,.) = 
  8   9
  10  11

(1,2,.,.) = 
 4  5
  6  7

(2,2,.,.) = 
 12  13
  14  15
[ CPULongType{2,2,2,2} ])"),
    Case(kInt, {2, 12}, ramp(0, 100000)).want(R"(Columns 1 to 8       0   100000   200000   300000   400000   500000   600000   700000
 1.2e+06  1.3e+06  1.4e+06  1.5e+06  1.6e+06  1.7e+06  1.8e+06  1.9e+06

Columns 9 to 12  800000   900000    1e+06  1.1e+06
   2e+06  2.1e+06  2.2e+06  2.3e+06
[ CPUIntType{2,12} ])"),
    Case(kFloat, {2}, real({123456.5, 654321.25})).want(R"(100000 *
 1.2346
 6.5432
[ CPUFloatType{2} ])"),
    Case(kFloat, {1, 2}, real({0.001, 0.002})).want(R"(0.001 *
 1.0000  2.0000
[ CPUFloatType{1,2} ])"),
    Case(kDouble, {1, 14}, ramp(123456.5, 1000)).want(R"(Columns 1 to 10100000 *
 1.2346  1.2446  1.2546  1.2646  1.2746  1.2846  1.2946  1.3046  1.3146  1.3246

Columns 11 to 14100000 *
 1.3346  1.3446  1.3546  1.3646
[ CPUDoubleType{1,14} ])"),
    Case(kDouble, {2, 1, 3}, ramp(1234567.5, 1)).want(R"((1,.,.) = 
1000000 *
  1.2346  1.2346  1.2346

(2,.,.) = 
1000000 *
  1.2346  1.2346  1.2346
[ CPUDoubleType{2,1,3} ])"),
    Case(kChar, {1, 2, 25}, ramp(-25, 1)).want(R"((1,.,.) = 
Columns 1 to 19 -25 -24 -23 -22 -21 -20 -19 -18 -17 -16 -15 -14 -13 -12 -11 -10  -9  -8  -7
   0   1   2   3   4   5   6   7   8   9  10  11  12  13  14  15  16  17  18

Columns 20 to 25  -6  -5  -4  -3  -2  -1
  19  20  21  22  23  24
[ CPUCharType{1,2,25} ])"),
    Case(kFloat, {2, 0, 3}, real({})).want(R"([ CPUFloatType{2,0,3} ])"),
    Case(kDouble, {}, real({1e+16})).want(R"(1e+16
[ CPUDoubleType{} ])"),
    Case(kDouble, {}, real({123456789.125})).want(R"(123456789.125
[ CPUDoubleType{} ])"),
    Case(kLong, {}, whole({1152921504606846976})).want(R"(1.152921504606847e+18
[ CPULongType{} ])"),
    Case(kFloat, {3}, real({1.5, 22222.25, -3})).want(R"(     1.5000
 22222.2500
    -3.0000
[ CPUFloatType{3} ])"),
    Case(kFloat, {2}, real({-1, -200})).want(R"(  -1
-200
[ CPUFloatType{2} ])"),
  };
}
// clang-format on

}  // namespace athanor::testing
